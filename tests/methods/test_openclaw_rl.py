"""OpenClaw-RL (arXiv 2603.10165): hand-worked advantages, what of a session is trained on, and a tiny model that moves."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from keepworth.methods.recipes import _users as users
from keepworth.methods.recipes import openclaw_rl as openclaw
from keepworth.models.inprocess import InProcessModel
from keepworth.records.episode import Episode, RewardTerm, Shown
from keepworth.records.model import FinishReason, Sample
from keepworth.training.objective.advantage import advantages
from keepworth.training.objective.batch import Batch
from keepworth.training.objective.options import Objective, ObjectiveError
from tests.end_to_end.tiny_folder import write_tiny_checkpoint
from tests.episode_of import call_of, episode_of
from tests.recipes.tiny_runs import run_of


def session(*messages: str, turns: int | None = None) -> Episode:
    """A session whose answers were followed by these messages, and by a last answer that nothing followed."""
    segments = tuple(
        call_of("policy", (1, 2), Sample((3 + turn, 4), (-1.0, -2.0), FinishReason.STOP, ()))
        for turn in range(len(messages) + 1 if turns is None else turns)
    )
    shown = tuple(Shown(openclaw.NEXT, openclaw.vote_of(text), text) for text in messages)
    return episode_of("0/0", segments, [RewardTerm("habit", 1.0)], role="policy", shown=shown)


def test_both_signals_by_hand() -> None:
    """Two answers of three and two tokens: votes 1 and -1; the first alone has a hint, under which its tokens have the
    log-probabilities -0.5, -3 and -1 in the place of -1, -2 and -1."""
    mask = torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]])
    drawn = torch.tensor([[-1.0, -2.0, -1.0], [-0.5, -0.25, 0.0]])
    batch = Batch(
        mask=mask, lp_behaviour=drawn, lp_teacher=torch.tensor([[-0.5, -3.0, -1.0], [-0.5, -0.25, 0.0]]),
        rewards=torch.tensor([1.0, -1.0]), group=torch.tensor([0, 1]), episode=torch.tensor([0, 1]),
    )  # fmt: skip
    hand = {
        (1.0, 0.0): [[1.0, 1.0, 1.0], [-1.0, -1.0, 0.0]],
        (0.0, 1.0): [[0.5, -1.0, 0.0], [0.0, 0.0, 0.0]],
        (1.0, 1.0): [[1.5, 0.0, 1.0], [-1.0, -1.0, 0.0]],
        (2.0, 0.5): [[2.25, 1.5, 2.0], [-2.0, -2.0, 0.0]],
    }
    for weights, expected in hand.items():
        found = advantages(batch, Objective(advantage=openclaw.NextState(*weights)))
        assert torch.equal(found, torch.tensor(expected)), weights
    with pytest.raises(ObjectiveError, match="nothing is learned from"):
        openclaw.NextState(0.0, 0.0)


@pytest.mark.parametrize(("message", "vote", "hint"), [
    ("Thanks, that is how I like it. What is snow?", 1.0, ""),
    ("Perfect. Please use no commas. What is snow?", 1.0, "Please use no commas."),
    (
        "No, not like that. Please be brief. Please do not shout! What is snow?",
        -1.0,
        "Please be brief. Please do not shout!",
    ),
    ("No, not like that. Please. What is snow?", -1.0, ""),
    ("Please one. Please two. Please three. Please four.", 0.0, "Please one. Please two. Please three."),
    ("Let us go on. What is snow?", 0.0, ""),
])  # fmt: skip
def test_vote_and_hint_are_read_from_the_next_message(message: str, vote: float, hint: str) -> None:
    assert (openclaw.vote_of(message), openclaw.hint_of(message)) == (vote, hint)


def test_session_yields_samples_with_votes_and_hints() -> None:
    """Three answers and two messages: a hint without a vote does not occur here, a vote without a hint does, and the last answer,
    which nothing followed, is never among them."""
    talk = session("No, not like that. Please be brief. And now?", "Thanks, that is how I like it. And now?")

    def collect(signals: str) -> list[tuple[str, float, tuple[str, ...]]]:
        samples = openclaw.samples_of(talk, signals)
        assert all(len(sample.segments) == 1 for sample in samples)
        return [(sample.id, sample.reward, tuple(item.text for item in sample.shown)) for sample in samples]

    assert collect("evaluative") == [("0/0/0", -1.0, ()), ("0/0/1", 1.0, ())]
    assert collect("directive") == [("0/0/0", 0.0, ("Please be brief.",))]
    assert collect("both") == [("0/0/0", -1.0, ("Please be brief.",)), ("0/0/1", 1.0, ())]
    assert [sample.segments[0].ids[0] for sample in openclaw.samples_of(talk, "both")] == [3, 4]
    assert openclaw.samples_of(session("Let us go on. And now?"), "both") == []


@pytest.mark.parametrize(("signals", "count"), [("evaluative", 1), ("both", 1), ("directive", 0)])
def test_the_only_turn_of_a_session_stays_without_a_vote(signals: str, count: int) -> None:
    samples = openclaw.samples_of(session(), signals)
    assert [sample.reward for sample in samples] == [0.0] * count


def test_a_hint_stands_behind_the_last_thing_that_the_user_said(tmp_path: Path) -> None:
    model = InProcessModel.load(write_tiny_checkpoint(tmp_path / "model"), precision="fp32")
    prompt = model.encode("Be warm.\n\nWhat is snow?")
    shown = openclaw.with_hint(prompt, "Please be brief.", model)
    assert model.decode(shown) == "Be warm.\n\nWhat is snow? Please be brief."
    assert shown[: len(prompt) - 1] == prompt[:-1]


@pytest.mark.parametrize("signals", ["evaluative", "directive", "both"])
def test_a_tiny_model_is_moved_by_each_signal(signals: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who always finds fault, and says how it should be."""
    monkeypatch.setattr(users, "_PLEASED", ("No, not like that. {wants}",))
    monkeypatch.setattr(users, "_DISPLEASED", ("No, not like that. {wants}",))
    model = write_tiny_checkpoint(tmp_path / "model")
    run = run_of(openclaw, model, tmp_path / "run", signals=signals, max_tokens=3, group_size=1)
    first, _ = run.metrics()
    assert first["trained_rows"] == 2
    assert first["gradient_norm"] > 0


def test_signals_are_refused_where_no_objective_reads_them() -> None:
    with pytest.raises(ValueError, match="signals = 'directive' has no effect"):
        openclaw.Config(objective="reinforce", signals="directive")
