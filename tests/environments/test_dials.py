"""Dials of chance: what they do, how often, and that the same actions always lead to the same course."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

from keepworth.environments.dials import HIDDEN, Dialled, Dials, dialled, parsed
from keepworth.environments.question import Question
from keepworth.environments.scene import PROGRESS, SUCCESS, Course, Replayed, Scene, Seat
from keepworth.environments.streams import missing, opened, world
from keepworth.episodes.episode import Task, metric
from keepworth.episodes.errors import KeepworthError, UnknownName

ACTIONS = ("go a", "go b", "go c")


def course(steps: int = 4) -> Course:
    """Always right: a."""
    words = "one two three four five six seven eight nine ten"
    return Course(*(Scene("goal", f"{words} {step}", ACTIONS, right=frozenset({"go a"})) for step in range(steps)))


def task(number: int = 0) -> Task:
    return Task(f"course/{number}", "course", "goal", (), SUCCESS)


def played(environment: Any, actions: list[str], number: int = 0, seed: int = 0) -> list[Any]:
    async def play() -> list[Any]:
        met: list[Any] = [await environment.reset(task(number), seed)]
        for action in actions:
            step = await environment.step(action)
            met.append((step, environment.scene))
            if step.stop is not None:
                break
        return met

    return asyncio.run(play())


def test_all_dials_off_change_nothing() -> None:
    assert played(Dialled(course(), Dials()), ["go a"] * 4) == played(course(), ["go a"] * 4)


def test_a_swap_does_another_action_as_often_as_it_says() -> None:
    lost, happened = [], []
    for number in range(1500):
        environment = Dialled(course(1), Dials(swap=0.3))
        met = played(environment, ["go a"], number)
        lost.append(metric(met[-1][0].rewards) == 0.0)
        happened.append(environment.happened == [(0, "swap")])
    assert lost == happened  # another action is wrong here
    assert np.mean(lost) == pytest.approx(0.3, abs=0.035)


def test_an_event_takes_the_reward_and_keeps_what_it_was_for_the_record() -> None:
    taken = []
    for number in range(1500):
        step = played(Dialled(course(1), Dials(event=0.25)), ["go a"], number)[-1][0]
        taken.append(metric(step.rewards) == 0.0)
        terms = {term.name: (term.value, term.weight) for term in step.rewards}
        assert terms[SUCCESS] == (0.0 if taken[-1] else 1.0, 1.0)
        if taken[-1]:
            assert terms[f"{SUCCESS} not counted"] == (1.0, 0.0)
            assert terms[PROGRESS] == (0.0, 0.0)
    assert np.mean(taken) == pytest.approx(0.25, abs=0.035)


def test_a_drift_gives_each_action_the_part_of_another() -> None:
    now = Dialled(course(), Dials(drift=2))
    met = played(now, ["go a", "go a", "go a"])
    assert met[-1][0].stop is not None  # from the third step on, a does what b did
    assert now.happened == [(2, "drift")]
    assert metric(met[-1][0].rewards) == 0.0
    known = played(Dialled(course(), Dials(drift=2)), ["go a", "go a", "go c", "go c"])
    assert metric(known[-1][0].rewards) == 1.0  # c does what a did, and the scene says so
    assert [scene.right for _, scene in known[2:]] == [frozenset({"go c"})] * 3
    back = played(Dialled(course(), Dials(drift=1, cycle=1)), ["go a", "go c", "go a", "go c"])
    assert metric(back[-1][0].rewards) == 1.0


@pytest.mark.parametrize("view", ["hidden", "lasting", "window"])
def test_a_partial_view_hides_its_share_of_words(view: str) -> None:
    dials = parsed(f"{view}=0.7")
    texts: list[str] = []
    for number in range(60):
        environment = Dialled(course(), dials)
        met = played(environment, ["go a"] * 3, number)
        texts += [met[0].text, *(step.observation.text for step, _ in met[1:])]
        assert [scene.observation for _, scene in met[1:]] == [step.observation.text for step, _ in met[1:]]
    words = [text.split() for text in texts]
    assert {len(each) for each in words} == {11}
    share = float(np.mean([word == HIDDEN for each in words for word in each]))
    by_word = {tuple(word != HIDDEN for word in each[:10]) for each in words}
    if view == "hidden":
        assert share == pytest.approx(0.7, abs=0.04)
        assert len(by_word) > 50
    elif view == "lasting":
        assert len(by_word) == 1  # the same words at every step of every episode
        assert 0.2 <= share <= 1.0
    else:
        assert share == pytest.approx(7 / 11)
        assert texts[:3] == [
            "one two three four ... ... ... ... ... ... ...",
            "... ... ... ... five six seven eight ... ... ...",
            "one ... ... ... ... ... ... ... nine ten 2",
        ]


def test_the_same_actions_lead_to_the_same_course() -> None:
    dials = Dials(swap=0.5, event=0.5, hidden=0.5, seed=3)
    first = played(Dialled(course(), dials), ["go a"] * 4, number=5)
    played(Dialled(course(), dials), ["go b"], number=6)
    assert played(Dialled(course(), dials), ["go a"] * 4, number=5) == first
    texts = {
        str(played(Dialled(course(), Dials(swap=0.5, event=0.5, hidden=0.5, seed=seed)), ["go a"] * 4, number, episode))
        for seed, number, episode in ((3, 5, 0), (4, 5, 0), (3, 6, 0), (3, 5, 1))
    }
    assert len(texts) == 4  # the dials' seed, the task and the episode's seed each make another


def test_one_dial_leaves_the_draws_of_the_others() -> None:
    alone, both = (Dialled(course(), dials) for dials in (Dials(event=0.5), Dials(event=0.5, hidden=0.7)))
    played(alone, ["go a"] * 4)
    played(both, ["go a"] * 4)
    assert alone.happened == both.happened


def test_an_episode_is_restored_by_a_copy_and_by_playing_it_again() -> None:
    dials = Dials(swap=0.2, event=0.5, hidden=0.5)

    async def half_way(environment: Any) -> None:
        await environment.reset(task(7), 0)
        await environment.step("go a")

    async def rest(environment: Any) -> list[Any]:
        return [await environment.step("go a"), environment.scene]

    whole = Dialled(course(), dials)
    asyncio.run(half_way(whole))
    copied = deepcopy(whole)
    expected = asyncio.run(rest(whole))
    assert asyncio.run(rest(copied)) == expected
    # Two games at one engine: the first loses its seat, and is played again up to where it was.
    seat = Seat()
    first, second = (Replayed(lambda: Dialled(course(), dials), {}, seat) for _ in range(2))
    asyncio.run(half_way(first))
    asyncio.run(half_way(second))
    assert asyncio.run(rest(first)) == expected


def test_what_cannot_take_effect_is_refused() -> None:
    with pytest.raises(KeepworthError, match="does not list its actions"):
        played(Dialled(Question(), Dials(swap=0.3)), [])
    assert played(Dialled(Question(), Dials(hidden=0.0, event=0.3)), [])
    for wrong, message in (
        ({"swap": 1.5}, "swap=1.5 is no share"),
        ({"drift": -1}, "below 0"),
        ({"cycle": 5}, "there is none"),
        ({"hidden": 0.5, "window": 0.5}, "only one of hidden, lasting, window"),
    ):
        with pytest.raises(KeepworthError, match=message):
            Dials(**wrong)  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match="Did you mean 'swap'"):
        parsed("swop=0.3")
    with pytest.raises(KeepworthError, match="'cycle' has no number"):
        parsed("drift=5~cycle")


def test_a_stream_is_dialled_by_its_name() -> None:
    assert parsed("swap~event=0.1~drift", 300) == Dials(swap=0.3, event=0.1, drift=150)
    plain, under = (opened(name, seed=2, length=40) for name in ("benign", "benign~drift~hidden=0.5"))
    assert under.family == "benign~drift~hidden=0.5"
    assert [each.key for each in under.tasks] == [each.key for each in plain.tasks]

    def scene(stream: Any, place: int) -> Scene:
        each = (*stream.tasks, *stream.held_out)[place]
        environment = each.environment()
        asyncio.run(environment.reset(each.task, 0))
        return environment.scene

    assert scene(under, 19).right == scene(plain, 19).right
    assert scene(under, 20).right != scene(plain, 20).right
    assert scene(under, 40).right != scene(plain, 40).right  # held out: after the drift
    assert HIDDEN in scene(under, 0).observation
    assert world("benign~swap").kind == "one-step"
    assert missing("benign~swap") is None
    with pytest.raises(UnknownName, match="dial 'swop'"):
        missing("benign~swop")
    with pytest.raises(KeepworthError, match="drift at task 400 never comes: benign has 40 tasks"):
        dialled(plain, Dials(drift=400))
