"""How often a statement of a change replaces the older statement that it changes, and how often another one replaces any.

    python -m benchmarks.memory.changes --json benchmarks/memory/changes.json

The list, `tests/memory/change_subjects.json`, has changes and near misses of 31 subjects of life and work. Of each change a
person says the older statement and another that is near in words, and 19 days later the newer statement: it is *replaced* if the
older one is closed and nothing else, and *astray* if another is. Of each near miss a person says two statements that are both
true, and it is *mistaken* if the first is closed. Rules on attributes were made by the subjects for development; nobody looked
at what becomes of those that are held out. Intervals of 95 % are over cases.
"""

from __future__ import annotations

import json
from typing import Any

from benchmarks.memory.engine import machine
from benchmarks.record import arguments, save
from benchmarks.tables import ROOT
from keepworth import Memory
from keepworth.base.statistics import rate

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


def share(count: int, cases: int) -> dict[str, float]:
    of = rate(count, cases)
    return {"count": count, "n": cases, "mean": of.mean, "low": of.low, "high": of.high}


def main() -> None:
    options = arguments(__doc__).parse_args()
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
