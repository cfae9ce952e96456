"""Order recall: which of two sentences of a conversation came first."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from keepworth.base.errors import KeepworthError
from keepworth.base.metrics import normalise
from keepworth.memory.sentences import sentences
from keepworth.records.episode import Task
from keepworth.registry import Method
from keepworth.worlds.benchmark import Benchmark
from keepworth.worlds.data_sets.longmemeval import TEXTS, chats
from keepworth.worlds.data_sets.passages import mix_options, with_evidence
from keepworth.worlds.json_lines import mark_evidence

_DISTANCES = (1, 2, 4, 8, 16, 32)
_WORDS = (8, 40)
"""The least and the most words of a sentence that a question may be about."""


def order_recall(
    split: str, *, sessions: int = 4, distances: Sequence[str] = tuple(map(str, _DISTANCES)), seed: int = 0
) -> list[Task]:
    """Returns questions which of two sentences came first: sequence order recall (SORT, arXiv 2410.08133) from conversations.

    A text has no dates, so that only its order tells. Chance is one half; the order of sentences in the question says
    nothing. SORT's own set (Book-SORT) takes segments of nine books. The tags are type (the distance), split, cluster (the
    text). Raises KeepworthError.

    Args:
        split: "train", "dev" or "test".
        sessions: The conversations of a text.
        distances: The numbers of turns between the two sentences, one question for each and text.
        seed: The seed of the texts and of the sentences.
    """
    steps = []
    for step in distances:
        if not str(step).isdigit() or not int(step):
            raise KeepworthError(f"distances={step}: a distance is a number of turns.", "Write distances=1,2,4.")
        steps.append(int(step))
    if sessions < 1:
        raise KeepworthError(f"sessions={sessions}: a text has 1 or more.", "Write sessions=4 or another number.")
    return [task for number in range(TEXTS[split]) for task in _orders(split, number, sessions, steps, seed)]


def _orders(split: str, number: int, count: int, distances: Sequence[int], seed: int) -> list[Task]:
    draw = random.Random(f"order/{split}/{seed}/{number}")
    talk = [replace(session, date="") for session in chats(split, -number - 1, count, seed)]
    turns = [(session.id, turn) for session in talk for turn in session.turns]
    counts = Counter(normalise(sentence) for _, turn in turns for sentence in sentences(turn.text))
    usable = [
        [s for s in sentences(turn.text) if counts[normalise(s)] == 1 and _WORDS[0] <= len(s.split()) <= _WORDS[1]]
        for _, turn in turns
    ]
    tasks = []
    for distance in distances:
        starts = [start for start in range(len(turns) - distance) if usable[start] and usable[start + distance]]
        if not starts:
            continue
        first = draw.choice(starts)
        pair = (draw.choice(usable[first]), draw.choice(usable[first + distance]))
        marks = {(turns[index][0], turns[index][1].index) for index in (first, first + distance)}
        key = f"order-recall/{split}/{seed}/{number}/{distance}"
        one, other = options = mix_options(key, pair)
        tasks.append(
            with_evidence(
                Task(
                    key=key,
                    source="order-recall",
                    input=f'Which of these came first in what you were told? "{one}" Or: "{other}"',
                    answers=(pair[0],),
                    verifier="exact_match",
                    sessions=tuple(mark_evidence(s, {index for id, index in marks if id == s.id}) for s in talk),
                    tags={"type": f"distance {distance:02}", "split": split, "cluster": f"{split}/{number}"},
                    options=options,
                )
            )
        )
    return tasks


METHOD = Method(
    kind="benchmark",
    name="order-recall",
    title="Order recall",
    paper="arXiv 2410.08133",
    about="Say which of two sentences came first in chats that were remembered",
    tags=("factual",),
    differs="Segments are from conversations of LongMemEval, where the paper takes nine books.",
    make=Benchmark("order-recall", order_recall, licence="MIT", kind="choice", metric="score", shipped=True),
)
