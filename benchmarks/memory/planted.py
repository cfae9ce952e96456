"""Facts that are planted, and asked for: the newer of two, in other forms of their words, at the end of long notes.

    python -m benchmarks.memory.planted --data DATA --json benchmarks/memory/planted.json

Replaced facts: pairs that differ in one detail, without `supersede`, in both orders of writing, among other sentences; asked
for what is (the newer has to be first), and for what was (the older). Together: two facts that both hold, of
which the older answers. Updates: LongMemEval's questions about knowledge that
changed, over the sessions that hold both; the first hit has to be of the newest. Languages: each word of a question alone, in
another form than in the fact, by words, among the first five of all facts of all languages; and the whole question. Long
notes: a fact behind turns of LongMemEval's conversations, asked for in other words, among short notes and other long ones;
beside it the same fact as a note of its own, and the same long notes without it. The facts are in
`planted_facts.json`; none of them was used to choose a setting, but those that hold together, to choose what a near tie is.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.memory.engine import machine
from benchmarks.memory.finding import arguments, default_encoder, read
from keepworth.evaluation.statistics import rate
from keepworth.memory.memory import Memory

PAIRS = 200
UNSPACED = ("Chinese", "Japanese", "Thai", "Korean")
FACTS = json.loads(Path(__file__).with_name("planted_facts.json").read_text(encoding="utf-8"))
OTHERS = (
    *(
        "I bought apples on the way home.",
        "The concert was sold out.",
        "My bicycle has a flat tyre.",
        "It rained all night.",
    ),
    *("She paints in oils.", "The soup needs salt.", "We saw a heron by the canal.", "The lift is out of order."),
)


def counted(hits: Sequence[bool]) -> dict[str, Any]:
    found = rate(sum(hits), len(hits))
    return {"mean": found.mean, "low": found.low, "high": found.high, "n": len(hits)}


def replaced(made: Any, model_order: int, past: bool, draw: random.Random) -> list[bool]:
    """model_order: 1 where the older is written first, -1 where the newer is."""
    out = []
    for _ in range(PAIRS if not past else PAIRS // 4):
        if past:
            one, other, question, values = draw.choice(FACTS["first"])
            old, new = draw.sample(values, 2)
            pair = [(one.format(v=old), "2024-02-01"), (other.format(w=new), "2026-02-01")]
        else:
            form, question, values, *roles = draw.choice(FACTS["replaced"])
            role = draw.choice(roles[0]) if roles else ""
            old, new = draw.sample(values, 2)
            pair = [(form.format(r=role, v=old), "2024-02-01"), (form.format(r=role, v=new), "2026-02-01")]
            question = question.format(r=role)
        memory = Memory(":memory:", encoder=made, policy=None)
        for text in draw.sample(OTHERS, 5):
            memory.add(text, event_time="2025-02-01")
        for text, when in pair[::model_order]:
            memory.add(text, event_time=when)
        out.append(memory.search(question, top_k=3)[0].text == pair[0 if past else 1][0])
    return out


def together(made: Any, draw: random.Random) -> list[bool]:
    """Of two facts that hold together and have words of the question in common: whether the one that answers goes before the
    newer one that does not."""
    out = []
    for newer, right, question in FACTS["together"]:
        memory = Memory(":memory:", encoder=made, policy=None)
        for text in draw.sample(OTHERS, 5):
            memory.add(text, event_time="2025-02-01")
        memory.add(right, event_time="2024-02-01")
        memory.add(newer, event_time="2026-02-01")
        out.append(memory.search(question, top_k=3)[0].text == right)
    return out


def updates(data: Path, made: Any, **options: Any) -> list[bool]:
    """Of each question about what changed: whether the session that answers goes before the one that it makes stale. options: of
    the search."""
    out = []
    for row in read(data / "longmemeval" / "longmemeval_oracle.json.gz"):
        if row["question_type"] != "knowledge-update" or row["question_id"].endswith("_abs"):
            continue
        dates = dict(zip(row["haystack_session_ids"], row["haystack_dates"], strict=True))
        newest = max(row["answer_session_ids"], key=lambda name: dates[name])
        asked_at = row["question_date"].split()[0].replace("/", "-")
        memory = Memory(":memory:", encoder=made, policy=None, clock=partial(str, f"{asked_at}T23:59:59"))
        for name, session in zip(row["haystack_session_ids"], row["haystack_sessions"], strict=True):
            day = dates[name].split()[0].replace("/", "-")
            texts = [turn["content"] for turn in session if turn["role"] == "user" and turn["content"].strip()]
            memory.add_many(texts, event_time=day, metadata={"session": name}, repeat=True)
        hits = memory.search(row["question"], top_k=10, **options)
        out.append(bool(hits) and hits[0].item.metadata["session"] == newest)
    return out


def languages(whole: bool) -> dict[str, list[bool]]:
    """whole: questions are asked as they are, not each of their words alone."""
    memory = Memory(":memory:", encoder=None, policy=None)
    ids = {fact: memory.add(fact).id for facts in FACTS["languages"].values() for fact, _ in facts}
    return {
        language: [
            ids[fact] in [hit.id for hit in memory.search(asked, top_k=5)]
            for fact, question in facts
            for asked in ([question] if whole else question.split())
        ]
        for language, facts in FACTS["languages"].items()
    }


def of_languages(hits: dict[str, list[bool]], *, spaced: bool) -> list[bool]:
    return [each for name, listed in hits.items() for each in listed if (name not in UNSPACED) == spaced]


def long_notes(
    data: Path, made: Any, words: int, short: int, draw: random.Random, *, apart: bool = False
) -> list[bool]:
    """apart: each fact is a note of its own, and the long notes do without."""
    rows = read(data / "longmemeval" / "longmemeval_oracle.json.gz")
    turns = [turn["content"] for row in rows for session in row["haystack_sessions"] for turn in session]
    memory = Memory(":memory:", encoder=made, policy=None)
    memory.add_many([text[:300] for text in draw.sample(turns, short) if text[:300].strip()], repeat=True)
    ids = []
    for fact, _ in FACTS["notes"]:
        said: list[str] = []
        while sum(len(text.split()) for text in said) < words:
            said.append(draw.choice(turns))
        if apart:
            memory.add("\n".join(said))
        ids.append(memory.add(fact if apart else "\n".join([*said, fact])).id)
    questions = [question for _, question in FACTS["notes"]]
    return [
        id in [hit.id for hit in memory.search(question, top_k=3)] for id, question in zip(ids, questions, strict=True)
    ]


def main() -> None:
    options = arguments(__doc__).parse_args()
    made = default_encoder(options.vectors)
    by_language, whole = languages(whole=False), languages(whole=True)
    rows = {
        "of two facts the newer, the older written first": replaced(made, 1, False, random.Random(1)),
        "of two facts the newer, the newer written first": replaced(made, -1, False, random.Random(2)),
        "asked for what was: the older of two": replaced(made, 1, True, random.Random(3)),
        "of two that hold together the one that answers": together(made, random.Random(8)),
        "LongMemEval, what changed: the newest session first": updates(options.data, made),
        "the same with half_life=30": updates(options.data, made, half_life=30.0),
        "questions in other forms, 14 languages with spaces": of_languages(whole, spaced=True),
        "questions in Chinese, Japanese, Thai and Korean": of_languages(whole, spaced=False),
        "words in other forms, 14 languages with spaces": of_languages(by_language, spaced=True),
        "words in Chinese, Japanese, Thai and Korean": of_languages(by_language, spaced=False),
        "end of a note of 500 words, among 30 short notes": long_notes(options.data, made, 500, 30, random.Random(4)),
        "end of a note of 500 words, among 400 short notes": long_notes(options.data, made, 500, 400, random.Random(5)),
        "end of a note of 10,000 words, among 30 short notes": long_notes(
            options.data, made, 10_000, 30, random.Random(6)
        ),
        "end of a note of 10,000 words, among 400 short notes": long_notes(
            options.data, made, 10_000, 400, random.Random(7)
        ),
        "the same, the facts notes of their own": long_notes(
            options.data, made, 10_000, 400, random.Random(7), apart=True
        ),
    }
    result = {
        "machine": machine(),
        "rows": {name: counted(hits) for name, hits in rows.items()},
        "languages": {name: counted(hits) for name, hits in by_language.items()},
    }
    for name, each in (*result["rows"].items(), *result["languages"].items()):
        print(f"{name}: {each['mean']:.2f} [{each['low']:.2f}, {each['high']:.2f}] n={each['n']}")
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
