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

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from keepworth.agents.agent import Action, Caller
from keepworth.agents.chat import Chat, format_of
from keepworth.environments.environment import Step
from keepworth.episodes.episode import Episode, Group, Observation, RewardTerm, Shown, StopReason, Task
from keepworth.episodes.model import Reads, Tokens
from keepworth.episodes.text import as_text
from keepworth.learning.objective.options import Objective
from keepworth.learning.objective.parts import Advantage, Amount, Clip, KlLoss, Token, part
from keepworth.memory.english import Patterns
from keepworth.recipes.hooks import Hooks
from keepworth.recipes.recipe import Recipe
from keepworth.recipes.settings import Count, Idle, Rate, Settings, objective_of
from keepworth.registry import Method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.learning.collect.groups import Again
    from keepworth.learning.learner import Learner
    from keepworth.learning.objective.advantage import CreditTable
    from keepworth.learning.rows import Rows
    from keepworth.recipes.system import System

HABIT, VOTE, HINT, NEXT = "habit", "vote", "hint", "next message"
_WORDS = Patterns("signals")
LONGEST = 20_000
"""Characters of a message that are read."""
SHORTEST, SENTENCES = 10, 3
"""A hint has more than `SHORTEST` characters, and at most `SENTENCES` sentences."""
_REQUEST = re.compile(r"[^.!?]*\bplease\b[^.!?]*[.!?]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class User:
    """A simulated user, who wants every answer to name the thing in the question.

    wants: the user's habit, as a request; follows: whether an answer fits it.
    """

    wants: str
    follows: Callable[[str], bool]


USERS = {
    "brief": User("Please answer in at most eight words.", lambda answer: len(answer.split()) <= 8),
    "lists": User("Please write a numbered list.", lambda answer: bool(re.search(r"(?:^|\n)\s*\d+\.", answer))),
}
_PLEASED = ("Thanks, that is how I like it.", "Perfect. {wants}", "Let us go on.")
_DISPLEASED = ("No, not like that. {wants}", "That is not what I like. {wants}", "Wrong, try harder.", "Let us go on.")
_ASKED = {
    "What is the capital of {}?": "France, Italy, Spain, Japan, Egypt, Peru, Norway, Greece",
    "What is the opposite of {}?": "hot, big, fast, happy, old, dark, rich, loud",
    "What color is {}?": "the sky, grass, snow, coal, blood, the sun, a frog, a plum",
    "What do {} eat?": "cows, cats, bees, birds, horses, whales, frogs, bears",
    "What is {} for?": "a spoon, a rope, a lamp, a key, soap, a tent, a map, a clock",
    "What is a {}?": "river, guitar, doctor, bridge, planet, poem, forest, window",
    "How do I cook {}?": "rice, eggs, pasta, fish, beans, potatoes, soup, corn",
    "Where can I find {}?": "gold, salt, sand, wolves, pearls, mushrooms, shade, honey",
}
THINGS = {form.format(thing): thing for form, things in _ASKED.items() for thing in things.split(", ")}
"""Questions, and the thing each is about."""


def questions(split: Literal["train", "dev", "test"]) -> list[str]:
    """Returns the users' questions: of each form four in training, two others in dev, two others in test."""
    part_of = {"train": range(4), "dev": range(4, 6), "test": range(6, 8)}[split]
    return [question for number, question in enumerate(THINGS) if number % 8 in part_of]


class Talk:
    """A session: the user asks `turns` questions, and before each but the first comments on the last answer. hinted: the first
    question comes with the request, which shows how well the model can follow the habit at all."""

    def __init__(self, user: User, turns: int, hinted: bool = False) -> None:
        self._user, self._turns, self._hinted = user, turns, hinted

    async def reset(self, task: Task, seed: int) -> Observation:
        self._draw, self._turn, self._question = random.Random(seed), 0, task.input
        return Observation(f"{task.input} {self._user.wants}" if self._hinted else task.input)

    async def step(self, action: str) -> Step:
        follows = THINGS[self._question].lower() in action.lower() and self._user.follows(action)
        reward, self._turn = RewardTerm(HABIT, float(follows)), self._turn + 1
        if self._turn == self._turns:
            return Step(rewards=(reward,), stop=StopReason.COMPLETED, answer=action)
        reply = self._draw.choice(_PLEASED if follows else _DISPLEASED).format(wants=self._user.wants)
        self._question = self._draw.choice(questions("train"))
        return Step(Observation(f"{reply} {self._question}"), (reward,), answer=action)

    async def close(self) -> None:
        """Does nothing: the session holds no resources."""


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
            sample = replace(
                session,
                id=f"{session.id}/{index}",
                segments=(segment,),
                shown=(Shown(HINT, vote, hint),) if hint else (),
                rewards=(RewardTerm(VOTE, vote, scorer="signals"),),
            )
            samples.append(sample)
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
        every = learner.passes.split(taught, range(len(shown)))
        scores, _ = learner.passes.scores(taught, every, temperature)
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
    """Returns a prompt with a hint after the user's last message. No token of it is encoded again."""
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
            yield (
                ("signals",),
                f"with objective = {objective_of(self).name}, which reads no hints",
                "leave objective out",
            )


def system(config: Config) -> System:
    from keepworth.recipes.system import Measured, System
    from keepworth.rollouts.driver import Limits, Play

    user = USERS[config.user]

    def play(turns: int, hinted: bool = False) -> Play:
        return Play(
            lambda task: Talk(user, turns, hinted),
            lambda task, memory: Assistant(config.system, max_tokens=config.max_tokens),
        )

    def tasks(split: Literal["train", "dev", "test"]) -> list[Task]:
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
        test={
            "other questions": Measured(tasks("test"), {"": play(1), "hinted": play(1, hinted=True)}, tier="template")
        },
        metrics={HABIT: "follows the habit"},
        limits=Limits(max_turns=config.turns, environment_seconds=config.environment_seconds),
        length_budget=config.max_tokens,
        row_budget=config.max_tokens,
        hooks=Hooks(regroup=regroup),
        note=f"The user {config.user!r}: {user.wants} First answers to questions that were not trained on, greedy.",
    )


METHOD = Method(
    kind="recipe",
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
    extra="train",
)
