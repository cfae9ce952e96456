"""SkillMimic-V2: similarities, joins, masked frames and weights are those of direct computation."""

from __future__ import annotations

import numpy as np
import pytest

from keepworth.methods.studies.stitched_skills import (
    ALPHA,
    FRAMES,
    LAST,
    MASKED,
    Parts,
    clean_paths,
    clip_weights,
    distance,
    draw_clips,
    draw_trials,
    is_fallen,
    make_plane,
    rules,
    shown_in,
)

pytest.importorskip("gymnasium", reason="the extra control brings it")


def test_distance_weighs_places_four_times_and_speeds_a_quarter() -> None:
    assert distance(np.array([1.0, 0.0, 2.0, 0.0]), np.zeros(4)) == pytest.approx(4.0 + 0.25 * 4.0)


def test_weights_of_clips_are_even_without_alpha_and_never_lower_for_a_lower_reward() -> None:
    earned = np.array([0.9, 0.1, 0.5, 0.1])
    assert clip_weights(earned, 0.0) == pytest.approx(np.full(4, 0.25))
    for alpha in (0.3, ALPHA, 1.0):
        weights = clip_weights(earned, alpha)
        assert weights.sum() == pytest.approx(1.0)
        assert np.all(np.diff(weights[np.argsort(earned)]) <= 1e-12)
    softmax = np.exp(-5.0 * earned) / np.exp(-5.0 * earned).sum()
    assert clip_weights(earned, 1.0) == pytest.approx(softmax)


def test_state_is_joined_to_the_most_similar_frame_behind_more_masked_frames_the_farther_it_is() -> None:
    generator, clips = np.random.default_rng(0), draw_clips(Parts(), 0)
    frame = 3 * FRAMES + 5
    assert clips.join(clips.frames[frame], int(clips.skill[frame]), generator) == (frame, 1)
    masked = []
    for far in (0.0, 0.5, 1.0):
        state = clips.frames[frame] + np.array([0.0, 0.0, far, far])
        joined, behind = clips.join(state, int(clips.skill[frame]), generator)
        open_frames = [of for of in range(2 * FRAMES, 4 * FRAMES) if of % FRAMES < FRAMES - LAST]
        nearest = min(open_frames, key=lambda of: float(distance(state, clips.frames[of])))
        assert joined == nearest
        assert behind == max(1, np.ceil(MASKED * np.sqrt(distance(state, clips.frames[nearest]))))
        masked.append(behind)
    assert masked == sorted(masked)


def test_masked_frames_are_not_paid_and_frames_of_the_clip_are() -> None:
    plane = make_plane(draw_clips(Parts(off_path=False), 1)).unwrapped
    masked, paid = 0, 0
    for seed in range(40):
        plane.reset(seed=seed)
        behind = plane.masked  # type: ignore[attr-defined]
        for step in range(FRAMES):
            fallen, over, reward = False, False, 0.0
            _, reward, fallen, over, _ = plane.step(np.zeros(2))
            if fallen or over:
                break
            masked += step < behind
            paid += step >= behind
            assert (reward == 0.0) == (step < behind)
    assert masked > 20
    assert paid > 100


def test_starts_are_on_a_path_or_beside_it_and_never_in_a_pit() -> None:
    paths = clean_paths()
    assert not is_fallen(paths[..., :2]).any()
    for starts in ("own", "beside", "switch"):
        trials = draw_trials(starts, 100, 3)
        assert not is_fallen(trials.states[:, :2]).any()
        far = distance(trials.states[:, None], paths[trials.skills]).min(1)
        assert (far < 1e-9).all() == (starts == "own")


def test_steering_by_clean_paths_shows_skills_and_chance_does_not() -> None:
    trials = draw_trials("own", 200, 5)
    trials.wind[:] = 0.0
    act = rules(draw_clips(Parts(), 5), 5)
    assert shown_in(trials, act["steered by clean paths"]) >= 0.9
    assert shown_in(trials, act["steered by clips"]) >= 0.5
    assert shown_in(trials, act["chance"]) <= 0.05
