"""How often a statement of a change replaces the older statement that it changes, and how often another one replaces any.

    python -m benchmarks.memory.changes --json benchmarks/memory/changes.json
    python -m benchmarks.memory.changes --data DATA

The list, `tests/memory/change_subjects.json`, has changes and near misses of 72 subjects of life and work, a third of those
that were added last in German, French and Spanish. Of each change a person says the older statement and another that is near in
words, and 19 days later the newer statement: it is *replaced* if the older one is closed and nothing else, and *astray* if
another is. Of each near miss a person says two statements that are both true, and it is *mistaken* if the first is closed.
Rules on attributes were made by the subjects for development; nobody looked at what becomes of single cases of those that are
held out. The halves named "more" were written by somebody who changed the rules later, but before reading them. Intervals of 95
% are over cases.

With --data, a folder as `benchmarks.memory.said` takes it, it counts instead how many of 1,000 statements of ordinary talk
replace an older one: what people say in conversations of LoCoMo and of LongMemEval, where hardly any of it is a change.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.memory.engine import machine
from benchmarks.memory.said import Talk, locomo, longmemeval
from benchmarks.record import arguments, save
from benchmarks.tables import ROOT
from keepworth import Memory
from keepworth.base.statistics import rate
from keepworth.memory.operations import SUPERSEDES

LIST = ROOT / "tests" / "memory" / "change_subjects.json"
ENCODERS = ("hashing", "minilm")


def say(memory: Memory, user: str, day: int, *texts: str) -> set[str]:
    """Tell a memory texts on one day after the other, and return its open notes."""
    for number, text in enumerate(texts, day):
        memory.add([{"role": "user", "content": text, "said_at": f"2026-01-{number:02}"}], infer=True, user_id=user)
    return {item.text for item in memory.get_all(user_id=user)}


def measure(half: dict[str, list[dict[str, str]]], encoder: str) -> dict[str, Any]:
    """Return the shares of changes that replace and that go astray, and of near misses that are mistaken."""
    replaced = astray = mistaken = 0
    changes, near_misses = half["changes"], half["near_misses"]
    with Memory(encoder=encoder, policy=None, log="off", writer="default") as memory:
        for number, case in enumerate(changes):
            before = say(memory, f"change {number}", 1, case["old"], case["other"])
            gone = before - say(memory, f"change {number}", 20, case["new"])
            right = {text for text in before if case["old"].rstrip(".") in text}
            replaced += bool(right) and gone == right
            astray += not gone <= right
        for number, case in enumerate(near_misses):
            before = say(memory, f"near miss {number}", 1, case["old"])
            mistaken += not before <= say(memory, f"near miss {number}", 20, case["new"])
    return {
        "replaced": share(replaced, len(changes)),
        "astray": share(astray, len(changes)),
        "mistaken": share(mistaken, len(near_misses)),
    }


def measure_talk(talks: Iterable[Talk]) -> dict[str, float]:
    """Return how many statements of conversations there are, how many older ones they replace, and that of 1,000."""
    statements = replaced = 0
    for talk in talks:
        with Memory(encoder="hashing", policy=None, log="off", writer="default") as memory:
            for _, messages in talk.sessions:
                memory.add(messages, infer=True)
            items = memory.get_all(limit=1_000_000)
            gone = sum(link.relation == SUPERSEDES for item in items for link in item.links)
            statements, replaced = statements + len(items) + gone, replaced + gone
    return {"statements": statements, "replaced": replaced, "of 1,000": round(1000 * replaced / max(1, statements), 2)}


def share(count: int, cases: int) -> dict[str, float]:
    of = rate(count, cases)
    return {"count": count, "n": cases, "mean": of.mean, "low": of.low, "high": of.high}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path, help="folder with LoCoMo and LongMemEval")
    parser.add_argument("--conversations", type=int, default=2, help="of LoCoMo")
    parser.add_argument("--questions", type=int, default=40, help="of LongMemEval, whose sessions are used")
    options = parser.parse_args()
    if options.data is not None:
        print("LoCoMo:", measure_talk(locomo(options.data, options.conversations)), flush=True)
        print("LongMemEval:", measure_talk(longmemeval(options.data, options.questions, 10)), flush=True)
        return
    halves, record = json.loads(LIST.read_text(encoding="utf-8")), dict[str, Any]()
    setting = machine()
    for name, half in halves.items():
        for encoder in ENCODERS:
            record[f"{name}, {encoder}"] = row = measure(half, encoder)
            print(f"{name}, {encoder}:", {key: f"{of['count']} of {of['n']}" for key, of in row.items()}, flush=True)
    if options.json:
        save(options.json, {"command": "python -m benchmarks.memory.changes", "machine": setting, "shares": record})


if __name__ == "__main__":
    main()
