"""OpenClaw-RL: a conversation is its own training data, because the message after an answer says how good it was and how it
should have been.

After "OpenClaw-RL: Train Any Agent Simply by Talking" (arXiv 2603.10165). Users with fixed habits are simulated: each asks
questions, comments on the last answer before the next question, and sometimes says how it should be.

    evaluative   vote in {-1, 0, 1} of the next message          A_t = vote, at all tokens of the answer, without a baseline
    directive    hint, one to three sentences of that message    A_t = log pi(a_t | prompt with the hint) - log pi(a_t | prompt)
    both         A_t = vote + directive

Rules find the votes: thanks, and corrections. The hint is added after the user's last message, for the teacher alone, which has
the weights that are trained. A turn without a next message is left out, unless the session has no other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from keepworth.base.text import as_text
from keepworth.memory.patterns import Patterns
from keepworth.methods.recipes._users import HABIT, USERS, Split, Talk, questions
from keepworth.records.episode import Episode, Group, Observation, RewardTerm, Shown, Task
from keepworth.records.model import Reads, Tokens
from keepworth.training.hooks import Hooks
from keepworth.training.objective.options import Objective
from keepworth.training.objective.parts import Advantage, Amount, Clip, KlLoss, Token, part
from keepworth.training.recipe import Recipe, recipe_method
from keepworth.training.settings import Count, Idle, Rate, Settings, objective_of
from keepworth.worlds.agent import Action, Caller
from keepworth.worlds.chat import Chat, format_of

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.training.collect.groups import Again
    from keepworth.training.learner import Learner
    from keepworth.training.objective.advantage import CreditTable
    from keepworth.training.rows import Rows
    from keepworth.training.system import System

VOTE, HINT, NEXT = "vote", "hint", "next message"
_WORDS = Patterns("signals")
LONGEST = 20_000
"""Characters of a message that are read."""
SHORTEST, SENTENCES = 10, 3
"""A hint has more than `SHORTEST` characters, and at most `SENTENCES` sentences."""
_REQUEST = re.compile(r"[^.!?]*\bplease\b[^.!?]*[.!?]", re.IGNORECASE)


class Assistant(Chat):
    """Answers, and records the vote of each message but the first on the answer before. The user reads an answer cut by its token
    limit as it is."""

    async def act(self, observation: Observation, model: Caller) -> Action:
        followed, text = bool(self._messages), observation.text
        action = await super().act(observation, model)
        return replace(action, cut=False, shown=(Shown(NEXT, vote_of(text), text),) if followed else ())


def vote_of(message: str) -> float:
    """Returns the next message's vote on the answer before it: 1, -1, or 0 where it is unclear."""
    text = message[:LONGEST].replace("’", "'").strip()
    if _WORDS.correction.match(text):
        return -1.0
    first = text.split("\n", 1)[0]
    return float(_WORDS.thanks.match(first) is not None and not _WORDS.but.search(first))


def hint_of(message: str) -> str:
    """Returns the part of the next message that says how the answer should have been; "" where there is none, or hardly any."""
    hint = " ".join(sentence.strip() for sentence in _REQUEST.findall(message)[:SENTENCES])
    return hint if len(hint) > SHORTEST else ""


def samples_of(session: Episode, signals: str) -> list[Episode]:
    """Returns the training samples of a session: an episode for each answer with a signal in the next message, with its vote as
    reward and its hint in `shown`.

    A session of one turn has no next message: its turn stays with the vote 0, where votes count.
    """
    alone = (Shown(NEXT, 0.0, ""),) if len(session.segments) == 1 else ()
    samples = []
    for index, (segment, after) in enumerate(zip(session.segments, session.shown or alone, strict=False)):
        vote = 0.0 if signals == "directive" else after.score
        hint = "" if signals == "evaluative" else hint_of(after.text)
        if vote or hint or (alone and signals != "directive"):
            shown, rewards = (Shown(HINT, vote, hint),) if hint else (), (RewardTerm(VOTE, vote, scorer="signals"),)
            name = f"{session.id}/{index}"
            samples.append(replace(session, id=name, segments=(segment,), shown=shown, rewards=rewards))
    return samples


@part
class NextState(Advantage):
    """`evaluative` * R + `directive` * (log pi(token | prompt with the hint) - log pi(token | prompt)), the same weights as
    teacher; one that has no hint has no second term (OpenClaw-RL)."""

    evaluative: Amount = 1.0
    directive: Amount = 1.0

    def __post_init__(self) -> None:
        if self.evaluative == 0 == self.directive:
            raise ValueError("evaluative and directive are both 0: nothing is learned from")

    def measure(self, learner: Learner, rows: Rows, temperature: float) -> dict[str, Any]:
        """Returns the teacher's log-probabilities; without a hint, those of the sampling policy."""
        if not self.directive:
            return {}
        import torch

        shown = tuple(
            with_hint(context, texts[0], learner.model) if texts else context
            for context, texts in zip(rows.contexts, rows.shown, strict=True)
        )
        taught = replace(rows, contexts=shown)
        scores, _ = learner.passes.scores(taught, temperature)
        hinted = torch.tensor([bool(texts) for texts in rows.shown])[:, None]
        behaviour = rows.batch.lp_behaviour
        return {"lp_teacher": torch.where(hinted, scores.to(behaviour.dtype), behaviour)}

    def tokens(self, credit: CreditTable) -> Tensor:
        advantage = self.evaluative * credit.spread(credit.reward)
        if not self.directive:
            return advantage
        batch = credit.batch
        gap = batch.require("lp_teacher", self) - batch.lp_behaviour
        return advantage + self.directive * gap.to(advantage.dtype)


def with_hint(context: Tokens, hint: str, model: Reads) -> Tokens:
    """Returns a prompt with a hint after the user's last message. No token of it is encoded again.

    Args:
        context: The tokens of the prompt, up to where the answer begins.
        hint: The text of the hint.
        model: It knows the format of a conversation, and encodes the hint.
    """
    chat = format_of(model, "auto")
    one, other = (chat.opening([{"role": "user", "content": text}])[::-1] for text in ("this", "that"))
    behind = next(count for count, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    end = len(context) - behind
    return (*context[:end], *model.encode_continuation(f" {as_text(hint)}"), *context[end:])


class Config(Settings):
    """Settings: one user, from whose conversations a model learns. Sessions that end early or give no signal are replaced."""

    steps: Count = 16
    evaluate_every: Count = 8
    tasks_per_step: Count = Field(default=16, description="sessions that an update learns from")
    group_size: Count = Field(
        default=1, description="sessions that begin with the same question; none is compared with another"
    )
    temperature: float = Field(default=0.7, gt=0, le=4, allow_inf_nan=False, description="at which answers are drawn")
    learning_rate: Rate = 1e-3
    user: Literal["brief", "lists"] = Field(default="brief", description="whose habit is to be learned")
    signals: Literal["evaluative", "directive", "both"] = Field(default="both", description="what is read of a message")
    turns: int = Field(default=2, ge=2, description="answers of a session, of which the last has no next message")
    max_tokens: int = Field(default=16, ge=2, description="of an answer")
    system: str = Field(default="Be warm.", description="what stands before a conversation")

    @property
    def default_objective(self) -> Objective:
        weights = {"evaluative": (1.0, 0.0), "directive": (0.0, 1.0), "both": (1.0, 1.0)}[self.signals]
        return Objective(
            name="openclaw_rl",
            advantage=NextState(*weights),
            ratio=Token("behaviour"),
            surrogate=Clip(0.2, 0.28),
            kl=KlLoss("k3", 0.02),
            aggregation="seq-mean-token-mean",
        )

    def idle(self) -> Iterator[Idle]:
        yield from super().idle()
        yield ("refill",), "without groups that are compared", "choose another recipe"
        if not isinstance(objective_of(self).advantage, NextState):
            reason = f"with objective = {objective_of(self).name}, which reads no hints"
            yield ("signals",), reason, "leave objective out"


def system(config: Config) -> System:
    from keepworth.training.system import Measured, System
    from keepworth.worlds.driver import Limits, Play

    user = USERS[config.user]

    def play(turns: int, hinted: bool = False) -> Play:
        assistant = partial(Assistant, config.system, max_tokens=config.max_tokens)
        return Play(lambda task: Talk(user, turns, hinted), lambda task, memory: assistant())

    def tasks(split: Split) -> list[Task]:
        asked = enumerate(questions(split))
        return [Task(f"{config.user}/{split}-{n}", "openclaw_rl", text, (user.wants,), HABIT) for n, text in asked]

    async def regroup(task: Task, group: Group, again: Again) -> list[Group] | None:
        samples = [sample for session in group.episodes for sample in samples_of(session, config.signals)]
        return [replace(group, episodes=(sample,)) for sample in samples] or None

    return System(
        role="policy",
        title="a model learns a user's habit from what the user says next",
        train=tasks("train"),
        play=play(config.turns),
        dev=Measured(tasks("dev"), {"": play(1)}),
        test={"other questions": Measured(tasks("test"), {"": play(1), "hinted": play(1, hinted=True)}, "template")},
        metrics={HABIT: "follows the habit"},
        limits=Limits(max_turns=config.turns, environment_seconds=config.environment_seconds),
        length_budget=config.max_tokens,
        row_budget=config.max_tokens,
        hooks=Hooks(regroup=regroup),
        note=f"The user {config.user!r}: {user.wants} First answers to questions that were not trained on, greedy.",
    )


METHOD = recipe_method(
    name="openclaw_rl",
    title="OpenClaw-RL",
    paper="arXiv 2603.10165",
    about="Learns a user's habit from the message after each answer: a vote, and a hint that a teacher of equal weights is shown",
    tags=("parametric", "factual", "formation"),
    claim="The score of simulated personalisation rises from 0.17 to 0.76 after 8 updates and 0.81 after 16, with both signals.",
    differs=(
        "Users of fixed habits are programs, rules take the place of the judge that votes and words hints, and the model has "
        "135M parameters."
    ),
    label="small",
    make=Recipe(Config, system),
)
