"""How often what comes next is read rightly as thanks, a correction, a question asked again, or a failing tool.

    python -m benchmarks.agents.signals --json benchmarks/agents/signals.json
    python -m benchmarks.agents.signals --show          # the signals in real conversations that were judged by hand
    python -m benchmarks.agents.signals --prefeval FOLDER

Wordings of the side "dev" are those that the rules were written against; "held-out" ones were written after them. Real
conversations are the sessions of LongMemEval: how often a signal is seen there, and of a random sample how many are what they are
called, read by hand.
"""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.memory.engine import machine
from benchmarks.record import arguments, save
from keepworth.evaluation.statistics import rate
from keepworth.memory.policy.signals import signal_of
from keepworth.methods.benchmarks._longmemeval import longmemeval

SAMPLE = 14
RIGHT = {"thanked": 14, "asked again": 8, "corrected": 4}
"""Read by hand, of at most `SAMPLE` each: who thanks is content; the same is asked again, not something like it; the user says
that the answer was wrong, and does not decline an offer or change the subject."""

_TEXTS = json.loads((Path(__file__).parent / "signal_wordings.json").read_text(encoding="utf-8"))
ASKED: str = _TEXTS["asked"]
Case = tuple[str, str, str]
"""Words that come next, their role, and the signal; "" for none."""
DEV, HELD_OUT = (tuple(map(tuple, _TEXTS[side])) for side in ("dev", "held-out"))


def on_wordings(cases: Sequence[Case]) -> dict[str, Any]:
    seen = [
        (want, signal.name if (signal := signal_of(text, role=role, asked_before=ASKED)) else "")
        for text, role, want in cases
    ]
    named = [(want, got) for want, got in seen if got]
    wanted = [(want, got) for want, got in seen if want]
    silent = [got for want, got in seen if not want]
    return {
        "cases": len(cases),
        "right of those seen": asdict(rate(sum(want == got for want, got in named), len(named))),
        "seen of those there": asdict(rate(sum(want == got for want, got in wanted), len(wanted))),
        "seen where none is": asdict(rate(sum(map(bool, silent)), len(silent))),
        "wrong": sorted({text for (text, _, want), (_, got) in zip(cases, seen, strict=True) if want != got}),
    }


def real_turns() -> list[tuple[str, str]]:
    """(what a user asked, what the user said after the answer), of every session once."""
    sessions = {
        session.id: session
        for split in ("train", "dev", "test")
        for task in longmemeval(split, distractors=0)
        for session in task.sessions
    }
    pairs = []
    for session in sessions.values():
        users = [turn.text for turn in session.turns if turn.speaker == "user"]
        pairs += pairwise(users)
    return pairs


def on_real_conversations(show: bool) -> dict[str, Any]:
    pairs, by_signal = real_turns(), defaultdict(list)
    for asked, reply in pairs:
        signal = signal_of(reply, asked_before=asked)
        if signal is not None:
            by_signal[signal.name].append((asked, reply))
    row: dict[str, Any] = {"turns": len(pairs)}
    for name, cases in sorted(by_signal.items()):
        random.Random(0).shuffle(cases)
        sample = cases[:SAMPLE]
        row[name] = {
            "seen": asdict(rate(len(cases), len(pairs))),
            "right by hand": asdict(rate(min(RIGHT[name], len(sample)), len(sample))),
        }
        for asked, reply in sample if show else ():
            print(f"[{name}] {reply[:150]!r}\n    after {asked[:110]!r}")
    return row


def on_preferences(folder: Path) -> dict[str, Any]:
    """First messages of PrefEval: a preference, and a question. Neither follows an answer, so every signal is a false one."""
    lines = gzip.decompress((folder / "explicit_with_mcq.jsonl.gz").read_bytes()).decode().splitlines()
    texts = [json.loads(line)[name] for line in lines for name in ("preference", "question")]
    counts = Counter(signal.name for text in texts if (signal := signal_of(text)) is not None)
    return {"messages": len(texts), "seen": asdict(rate(sum(counts.values()), len(texts))), "kinds": dict(counts)}


def main(argv: Sequence[str] | None = None) -> None:
    parser = arguments(__doc__)
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--prefeval", type=Path, help="the folder that holds explicit_with_mcq.jsonl.gz")
    options = parser.parse_args(argv)
    result: dict[str, Any] = {
        "machine": machine(),
        "dev wordings": on_wordings(DEV),
        "held-out wordings": on_wordings(HELD_OUT),
        "longmemeval": on_real_conversations(options.show),
    }
    if options.prefeval:
        result["prefeval"] = on_preferences(options.prefeval)
    print(json.dumps(result, indent=1))
    save(options.json, result)


if __name__ == "__main__":
    main()
