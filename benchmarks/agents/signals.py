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

ASKED = "How do I renew my passport in Norway before June?"
SAMPLE = 14
RIGHT = {"thanked": 14, "asked again": 8, "corrected": 4}
"""Read by hand, of at most `SAMPLE` each: who thanks is content; the same is asked again, not something like it; the user says
that the answer was wrong, and does not decline an offer or change the subject."""

# (words that come next, role, signal)
DEV = (
    ("Thanks, that helps!", "user", "thanked"),
    ("Perfect, exactly what I needed.", "user", "thanked"),
    ("That works now.", "user", "thanked"),
    ("Great, thank you so much!", "user", "thanked"),
    ("No, I meant Lisbon.", "user", "corrected"),
    ("That's wrong, it is in May.", "user", "corrected"),
    ("That doesn't work.", "user", "corrected"),
    ("You forgot the salt.", "user", "corrected"),
    ("I said metric units.", "user", "corrected"),
    ("Actually, it's 7.", "user", "corrected"),
    ("How do I renew my passport in Norway?", "user", "asked again"),
    ("Once more: how do I renew a passport in Norway before June?", "user", "asked again"),
    ("Traceback (most recent call last):\n  File 'a.py'\nKeyError: 'x'", "tool", "tool failed"),
    ("bash: foo: command not found", "tool", "tool failed"),
    ('{"error": "no such city"}', "tool", "tool failed"),
    ("2 failed, 30 passed in 1.2s", "tool", "tests failed"),
    ("32 passed in 1.2s", "tool", "tests passed"),
    ("Ran 4 tests in 0.01s\n\nOK", "tool", "tests passed"),
    ("What is the capital of Norway?", "user", ""),
    ("And how much is it?", "user", ""),
    ("No problem. Next: plan a trip to Rome.", "user", ""),
    ("I live in Oslo.", "user", ""),
    ('{"rows": 3, "error": null}', "tool", ""),
    ("total 12\n-rw-r--r-- a.txt", "tool", ""),
)
HELD_OUT = (
    ("You're a lifesaver!", "user", "thanked"),
    ("Brilliant, problem solved.", "user", "thanked"),
    ("Cheers, that did the trick.", "user", "thanked"),
    ("Just what the doctor ordered.", "user", "thanked"),
    ("Yes! It compiles now, thanks a million.", "user", "thanked"),
    ("Lovely, I'll use that.", "user", "thanked"),
    ("Hmm, that can't be right, the office closed in 2019.", "user", "corrected"),
    ("Not Paris in France, Paris in Texas.", "user", "corrected"),
    ("Try again, this time without the adverbs.", "user", "corrected"),
    ("This isn't what I was after.", "user", "corrected"),
    ("You mixed up the two columns.", "user", "corrected"),
    ("My name is spelled with a K, as I mentioned.", "user", "corrected"),
    ("Still crashes.", "user", "corrected"),
    ("So what are the steps to renew my Norwegian passport?", "user", "asked again"),
    ("I'm asking how to renew my passport in Norway before June.", "user", "asked again"),
    ("Passport renewal in Norway before June, how?", "user", "asked again"),
    ("Process exited with code 127", "tool", "tool failed"),
    ("HTTP 500 Internal Server Error", "tool", "tool failed"),
    ("TimeoutError: deadline exceeded", "tool", "tool failed"),
    ("error[E0382]: borrow of moved value: `x`", "tool", "tool failed"),
    ("Tests: 1 failed, 6 passed, 7 total", "tool", "tests failed"),
    ("--- FAIL: TestAdd (0.00s)", "tool", "tests failed"),
    ("12 passing (40ms)\n1 failing", "tool", "tests failed"),
    ("test result: ok. 4 passed; 0 failed", "tool", "tests passed"),
    ("ok  \texample.com/add\t0.004s", "tool", "tests passed"),
    ("Tests: 7 passed, 7 total", "tool", "tests passed"),
    ("Thanks, but that is for Sweden.", "user", "corrected"),
    ("No idea, what would you suggest?", "user", ""),
    ("Which documents do I bring to the passport office?", "user", ""),
    ("I meant to ask you something about my garden.", "user", ""),
    ("Great news, we are expecting a baby!", "user", ""),
    ("Perfect pitch runs in our family.", "user", ""),
    ("Explain what error: EACCES means.", "user", ""),
    ("def parse_error(line): return None", "tool", ""),
    ("0 failed logins, 3 users", "tool", ""),
    ("The error rate fell to 2 %.", "tool", ""),
)


def on_wordings(cases: Sequence[tuple[str, str, str]]) -> dict[str, Any]:
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
