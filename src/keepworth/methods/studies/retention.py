"""Recognition, recall and retention of facts seen a few times, in a memory and in a model's weights.

Made-up facts are seen once, three or ten times, then exactly as many other facts of the same form follow as the delay says. The
test asks for the fact by its cue (recall: exactly the right value), and whether it was seen before (recognition: the share of
facts that score higher than an unseen one, at the same moment). After "Recognition, recall, and retention of few-shot memories in
large language models", arXiv 2303.17557.

A memory recalls the text of its first hit, and recognises by that hit's score. Weights see a fact in a step of imitation each
(`--set model=smollm2-135m-instruct`; minutes); they recall by completing the cue, and recognise by the fact's log-probability.
Unseen facts are asked for as well: recalling one of those is a guess.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from keepworth.base.errors import KeepworthError
from keepworth.evaluation.study import Rows, Study, rows_of, wrap_names
from keepworth.methods.studies._readers import complete, imitate, learning_reader
from keepworth.registry import Method, part

if TYPE_CHECKING:
    from keepworth.memory.memory import Memory

THINGS = ("locker", "bicycle", "library card", "parking place", "ticket", "mailbox", "account", "seat")
SURNAMES = (
    *("Ashby", "Brook", "Calder", "Dunmore", "Ellery", "Farrow", "Garnet", "Holm"),
    *("Irving", "Jarrow", "Kell", "Lorne", "Marsh", "Norwood", "Ogden", "Pell"),
)


@dataclass(frozen=True, slots=True)
class DrawnFact:
    """A fact: `cue` is its beginning, `value` its end."""

    cue: str
    value: str

    @property
    def statement(self) -> str:
        return f"{self.cue} {self.value}."


def draw_facts(count: int, seed: int) -> list[DrawnFact]:
    """Returns distinct facts about people of the test side; all values are equally likely."""
    from keepworth.worlds.data_sets.people import names_of

    draw = random.Random(f"retention/{seed}")
    cues = [
        f"The {of} of {name} {last} has the number" for of in THINGS for name in names_of("test") for last in SURNAMES
    ]
    if count > len(cues):
        raise KeepworthError(
            f"there are {len(cues)} facts, and {count} are needed.", "Ask for fewer, or shorter delays."
        )
    return [DrawnFact(cue, str(draw.randrange(1000, 10000))) for cue in draw.sample(cues, count)]


ASKED = ("recall", "recognition", "recall of never met")


def recognised(score: float, lures: Sequence[float]) -> float:
    """Returns the share of lures that a score is above, ties as half."""
    return sum(float(score > lure) + 0.5 * float(score == lure) for lure in lures) / len(lures)


def run(
    *,
    facts: int = 24,
    exposures: str = "1,3,10",
    delays: str = "0,10,100,1000",
    encoder: str = "minilm",
    model: str = "",
    rate: float = 1e-3,
    seed: int = 0,
) -> Rows:
    """Measures recall and recognition by exposures and delay.

    Args:
        facts: Facts for each number of exposures, and as many unseen ones.
        exposures: How often a fact is seen, with commas.
        delays: Facts that follow a fact before it is asked for, with commas.
        encoder: Encoder of the memory.
        model: The model whose weights learn the same facts; "" leaves that arm out.
        rate: Learning rate of the weights.
        seed: Seed of the facts.
    """
    times, after = _numbers("exposures", exposures, 1), _numbers("delays", delays, 0)
    if facts < 3:
        raise KeepworthError(f"facts={facts}: an interval needs 3 or more.", "Write facts=24, say.")
    drawn = draw_facts(facts * (len(times) + 1) + after[-1], seed)
    lures, met, later = drawn[:facts], drawn[facts : facts * (len(times) + 1)], drawn[facts * (len(times) + 1) :]
    groups = {many: met[index * facts : (index + 1) * facts] for index, many in enumerate(times)}
    rows: Rows = []
    with tempfile.TemporaryDirectory() as folder:
        from keepworth.memory.memory import Memory

        for mode, embeds in (("lexical", None), ("hybrid", part("encoder")(encoder))):
            with Memory(Path(folder) / f"{mode}.mem", encoder=embeds, policy=None) as memory:
                rows += _measure(f"memory, {mode}", _Store(memory, mode), groups, lures, later, after)
    if model:
        weights = _Weights(*learning_reader(model, rate, seed))
        rows += _measure(f"weights of {model}", weights, groups, lures, later, after)
    return rows


def _numbers(name: str, text: str, least: int) -> list[int]:
    values = [int(word) if word.isdigit() else -1 for word in text.split(",")]
    if min(values) < least or sorted(set(values)) != values:
        raise KeepworthError(
            f"{name}={text}: numbers from {least} on, each larger than the last.", "Write 1,3,10, say."
        )
    return values


@dataclass(slots=True)
class _Store:
    """A memory that stores facts and is queried for them."""

    memory: Memory
    mode: Any

    def meet(self, facts: Sequence[DrawnFact]) -> None:
        self.memory.add_many([fact.statement for fact in facts], repeat=True)

    def find(self, query: str) -> Any:
        """Returns the first hit, or none, as a list."""
        return self.memory.search(query, top_k=1, mode=self.mode, explore=False)

    def recall(self, facts: Sequence[DrawnFact]) -> list[float]:
        """Returns 1 where the first hit for a fact's cue contains its value."""
        return [float(any(fact.value in hit.text for hit in self.find(fact.cue))) for fact in facts]

    def recognise(self, facts: Sequence[DrawnFact]) -> list[float]:
        """Returns for each fact the score of its first hit."""
        return [sum(hit.score for hit in self.find(fact.statement)) for fact in facts]


@dataclass(slots=True)
class _Weights:
    """A language model whose adapter imitates facts, one step for each."""

    model: Any
    learner: Any

    def meet(self, facts: Sequence[DrawnFact]) -> None:
        for fact in facts:
            imitate(self.model, self.learner, [(fact.cue, f" {fact.value}.")])

    def recall(self, facts: Sequence[DrawnFact]) -> list[float]:
        """Returns 1 where the model completes a fact's cue with its value."""
        texts = complete(self.model, [fact.cue for fact in facts], 8)
        return [float(text.strip().startswith(fact.value)) for text, fact in zip(texts, facts, strict=True)]

    def recognise(self, facts: Sequence[DrawnFact]) -> list[float]:
        """Returns for each fact the log-probability of its value after its cue."""
        prompts = [self.model.encode(fact.cue) for fact in facts]
        branches = [[self.model.encode_continuation(f" {fact.value}.")] for fact in facts]
        return [sum(scores[0]) for scores in self.model.score(prompts, branches)]


def _measure(
    arm: str,
    store: _Store | _Weights,
    groups: dict[int, list[DrawnFact]],
    lures: Sequence[DrawnFact],
    later: Sequence[DrawnFact],
    delays: Sequence[int],
) -> Rows:
    """Presents facts as often as their group says, all of them in the last pass; then others. Each fact is tested after exactly
    `delay` others, together with a lure."""
    together = [
        (many, index, fact)
        for index, of in enumerate(zip(*groups.values(), strict=True))
        for many, fact in zip(groups, of, strict=True)
    ]
    for left in range(max(groups), 1, -1):
        store.meet([fact for many, _, fact in together if many >= left])
    values = {(name, many, delay): [0.0] * len(lures) for delay in delays for name in ASKED for many in groups}
    for met, fact in enumerate([*(fact for _, _, fact in together), *later]):
        store.meet([fact])
        due = [(delay, *together[met - delay]) for delay in delays if 0 <= met - delay < len(together)]
        if due:
            facts = [fact for *_, fact in due] + [lures[index] for _, _, index, _ in due]
            recalled, scores = store.recall(facts), store.recognise(facts)
            for number, (delay, many, index, _) in enumerate(due):
                lure = number + len(due)
                values["recall", many, delay][index] = recalled[number]
                values["recall of never met", many, delay][index] = recalled[lure]
                values["recognition", many, delay][index] = recognised(scores[number], [scores[lure]])
    clusters = list(map(str, range(len(lures))))
    rows: Rows = []
    for delay in delays:
        never = [values["recall of never met", many, delay] for many in groups]
        arms = {"recall, never met": list(map(fmean, zip(*never, strict=True)))}
        arms |= {f"{name}, {many} times": values[name, many, delay] for many in groups for name in ASKED[:2]}
        rows += wrap_names(rows_of(arms, clusters), after=f", after {delay}")
    for one, other in pairwise(delays):
        for many in groups:
            fall = np.subtract(values["recall", many, one], values["recall", many, other]).tolist()
            rows += rows_of({f"recall, {many} times, after {one} minus after {other}": fall}, clusters, (-1.0, 1.0))
    return wrap_names(rows, f"{arm}: ")


METHOD = Method(
    kind="study",
    name="retention",
    title="Few-shot retention",
    paper="arXiv 2303.17557",
    about="Asks for facts met once or a few times, after others followed: recall and recognition, in a memory and in weights",
    tags=("token", "parametric", "factual", "evolution"),
    claim="Weights recognise after one exposure and recall after three; recall falls steeply in the first ten updates.",
    differs="Facts are made up and are met one at a time; a memory is asked beside the weights.",
    label="protocol",
    make=Study(run, "share of facts recalled; of lures that a fact is told from"),
)
