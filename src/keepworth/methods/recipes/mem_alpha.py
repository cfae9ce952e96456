"""Mem-alpha on the bounded bank: a memory of three parts, written chunk by chunk with calls, each chunk rewarded by itself.

After "Mem-alpha: Learning Memory Construction via Reinforcement Learning" (arXiv 2509.25911). The response to chunk t of a
rollout earns

    r_t = r1 + r2_t + beta r3 + gamma r4_t          beta = 0.05, gamma = 0.1

    r1 the answer's score, of the whole rollout; r2_t the share of the chunk's calls that changed something, 0 without a call;
    r3 = 1 - tokens in the final memory / tokens of all chunks; r4_t the mean over the chunk's calls of whether each is valid

and is compared with every response of its group, whatever its chunk: A_t = (r_t - mean) / std over all (rollout, chunk) of a
task. docs/recipes.md lists the differences from the paper: above all the size (135M parameters, chunks of four facts, one token
for each word of a call), one budget over all parts, and a rule that judges whether a call is valid, where the paper asks a model
of 32B.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from keepworth.memory.importance import FEATURES, hand_features
from keepworth.methods.recipes import bounded_bank
from keepworth.methods.recipes._bank.parted import ChunkedWriting, ChunkTurn, PartedBank, most_specific_calls
from keepworth.records.episode import RewardScope, RewardTerm
from keepworth.training.objective.options import Objective
from keepworth.training.objective.parts import GroupStd
from keepworth.training.objective.presets import vary_objective
from keepworth.training.objective.turns import StepIndex, StepState
from keepworth.training.recipe import Recipe, recipe_method
from keepworth.training.settings import GROUP_RELATIVE, Count, Idle, Share, objective_of

if TYPE_CHECKING:
    from keepworth.methods.recipes._bank.bounded_bank import BoundedBank
    from keepworth.methods.recipes._bank.course import WritingCourse
    from keepworth.methods.recipes._bank.reading import BankAnswer
    from keepworth.records import Episode
    from keepworth.training.recipe import Trainable

CORE, EPISODIC, SEMANTIC = "C", "E", "S"
ASK = "Store events as E, facts as S, the one about me as C:"
PROMPT_ID = "mem_alpha/1"
CALL_TOKENS = 5
"""Most tokens of a response about one fact, such as `-E0 S2`."""

MEM_ALPHA = vary_objective(
    GROUP_RELATIVE,
    name="mem_alpha",
    advantage=StepState(episode_weight=0.0, step_weight=1.0, discount=0.0, scale=GroupStd()),
    aggregation="seq-mean-token-mean",
    aggregation_unit="row",
)
"""All turns of a group are one cluster, because their segments have one state. One update per batch, so that there is nothing to
clip. No KL, as in the paper's text; its released script has one of 0.001."""


class Config(bounded_bank.ChunkConfig):
    """Settings: the bounded bank in three parts. An objective that compares whole episodes gets the answer's reward alone."""

    default_objective: ClassVar[Objective] = MEM_ALPHA
    holds: ClassVar[frozenset[str]] = frozenset({"rewards of turns", "states of turns"})

    core_tokens: Count = Field(default=48, description="of the core, longer ones are cut")
    success_weight: Share = Field(default=1.0, description="of the share of a chunk's calls that did something")
    compression_weight: Share = Field(default=0.05, description="of what the memory is shorter than what was read")
    validity_weight: Share = Field(default=0.1, description="of the share of a chunk's calls that chose a fitting part")

    def idle(self) -> Iterator[Idle]:
        yield from super().idle()
        if not self._by_chunk:
            reason = f"with objective = {objective_of(self).name}, which credits whole episodes"
            yield ("success_weight", "compression_weight", "validity_weight"), reason, "leave objective out"

    @property
    def _by_chunk(self) -> bool:
        return isinstance(objective_of(self).advantage, StepState | StepIndex)

    def credited(self, episode: Episode) -> Episode:
        """Returns the episode with the answer's reward alone where whole episodes are compared."""
        if self._by_chunk:
            return episode
        rewards = tuple(replace(term, weight=float(term.name == "answer")) for term in episode.rewards)
        return replace(episode, rewards=rewards)

    def earned(self, course: WritingCourse, answered: BankAnswer) -> list[RewardTerm]:
        """Returns r1 to r4 of every chunk, as terms of its segment. The answer's own term has weight 0, since r1 contains it."""
        measure = course.bank.bank.measure  # type: ignore[attr-defined]
        total = sum(measure(fact) for turn in course.turns for fact in turn.chunk)
        shorter = compression(sum(measure(fact.text) for fact in course.shown), total)
        terms = [RewardTerm("answer", answered.score, weight=0.0)]
        for number, turn in enumerate(course.turns):
            for name, value, weight in (
                ("qa", answered.score, 1.0),
                ("success", success(turn), self.success_weight),
                ("compression", shorter, self.compression_weight),
                ("validity", validity(turn), self.validity_weight),
            ):
                terms.append(RewardTerm(name, value, weight, RewardScope.SEGMENT, segment=number, shaping=True))
        return terms


def system(config: Config) -> Trainable:
    from keepworth.methods.recipes._bank.writers import ByCalls
    from keepworth.methods.recipes._bank.writing import BankWriter

    calls = ByCalls(
        course=lambda stream, bank, streams: writing_of(config, [fact.statement for fact in stream.facts], bank),
        rule=lambda now: imitated(now, config.share),
        earned=config.earned,
        max_tokens=CALL_TOKENS * config.chunk + 2,
        prompt_id=PROMPT_ID,
        turns=-(-config.length // config.chunk),
    )
    return BankWriter(calls)


def writing_of(config: Config, facts: Sequence[str], bank: BoundedBank) -> ChunkedWriting:
    """Returns a stream of facts as chunks that are written into a memory of three parts.

    Args:
        config: The settings of the recipe.
        facts: The statements, in order.
        bank: The bounded bank that is written.
    """
    parted = PartedBank(bank, (EPISODIC, SEMANTIC), {CORE: config.core_tokens})
    return ChunkedWriting(facts, parted, config.chunk, config.recent, ASK)


def success(turn: ChunkTurn) -> float:
    """Returns r2: the share of a response's calls that changed something; a duplicate did not. 0 without a call."""
    return sum(call.changed for call in turn.calls) / len(turn.calls) if turn.calls else 0.0


def compression(memory_tokens: int, seen_tokens: int) -> float:
    """Returns r3 = 1 - tokens in the final memory / tokens of all chunks."""
    return 1.0 - memory_tokens / seen_tokens


def validity(turn: ChunkTurn) -> float:
    """Returns r4: the share of a response's calls that are valid, 0 without a call. Unparsable and impossible calls are not
    valid. Deletions are: the released judge of the paper scores them 0, which teaches never to delete."""
    valid = [
        call.outcome == "deleted"
        or (call.outcome == "kept" and call.call is not None and fits(call.call.part, call.fact))
        for call in turn.calls
    ]
    return sum(valid) / len(valid) if valid else 0.0


def fits(part: str, text: str) -> bool:
    """Returns whether a part fits a fact, by a rule in place of the paper's judge. Episodic: it says when, or that something was
    done; semantic: it does not say when; core: it is about the speaker."""
    of = dict(zip(FEATURES, hand_features(text), strict=True))
    if part == EPISODIC:
        return bool(of["times"] or of["done"])
    if part == SEMANTIC:
        return not of["times"]
    return text.lower().startswith(("i ", "i'", "my ")) or " my " in text.lower()


def part_of(text: str) -> str:
    if fits(EPISODIC, text):
        return EPISODIC
    return CORE if hand_features(text)[FEATURES.index("starts with I am")] else SEMANTIC


def imitated(course: ChunkedWriting, share: int) -> str:
    """Returns a response by the rule `most specific`, which sees no answer, each fact in the part that fits it."""
    return most_specific_calls(course, share, part_of, CORE, SEMANTIC)


METHOD = recipe_method(
    name="mem_alpha",
    title="Mem-alpha",
    paper="arXiv 2509.25911",
    about="Trains a writer of core, episodic and semantic memory, with a reward for each chunk",
    tags=("token", "factual", "formation", "evolution"),
    claim="The mean is 0.642 on its validation suite and 0.592 on MemoryAgentBench with 4B parameters.",
    differs=(
        "Chunks have four facts, all parts share one budget, a rule judges whether a call is valid, and the "
        "model has 135M parameters."
    ),
    label="small",
    make=Recipe(Config, system),
)
