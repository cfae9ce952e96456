"""Material that people paste beside a question: logs, code, YAML, prose, traces, JSON and CSV, drawn from a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence

KINDS = ("log", "code", "yaml", "prose", "trace", "json", "csv")
PLACES = ("front", "middle", "end")
"""Where the question stands beside what was pasted."""
SIZES = (300, 1000, 4000, 20_000)
"""Characters of what was pasted."""

WHAT = (
    *("cache", "queue", "worker", "session", "token", "bucket", "shard", "index"),
    *("replica", "broker", "upload", "invoice", "cart", "user", "order", "payment"),
)
DID = (
    *("connected", "timed out", "was refused", "finished", "was retried"),
    *("started", "stopped", "is degraded", "was evicted", "is full"),
)
LEVELS = ("INFO", "WARN", "ERROR", "DEBUG")


def place_question(question: str, pasted: str, place: str) -> str:
    """A question before, amid or behind what was pasted."""
    if place == "front":
        return f"{question}\n\n{pasted}"
    if place == "end":
        return f"{pasted}\n\n{question}"
    lines = pasted.split("\n")
    middle = len(lines) // 2
    return "\n".join([*lines[:middle], "", question, "", *lines[middle:]])


def paste(kind: str, length: int, draw: random.Random, code: Sequence[str], prose: Sequence[str]) -> str:
    """About `length` characters of one kind, in whole lines; `code` and `prose` are what is taken of these."""
    pieces: dict[str, Callable[[], str]] = {
        "log": lambda: (
            f"2026-0{draw.randint(1, 9)}-{draw.randint(10, 28)}T{draw.randint(10, 23)}:{draw.randint(10, 59)}:"
            f"{draw.randint(10, 59)}.{draw.randint(100, 999)}Z {draw.choice(LEVELS)} {draw.choice(WHAT)}-"
            f"{draw.randint(1, 9)} {draw.choice(WHAT)} {draw.choice(DID)} after {draw.randint(2, 9000)} ms "
            f"(id={draw.getrandbits(32):08x})"
        ),
        "code": lambda: draw.choice(code),
        "yaml": lambda: (
            f"- name: {draw.choice(WHAT)}-{draw.randint(1, 99)}\n  {draw.choice(WHAT)}:\n    replicas: "
            f"{draw.randint(1, 9)}\n    {draw.choice(WHAT)}_path: /var/{draw.choice(WHAT)}/{draw.choice(WHAT)}\n"
            f"    enabled: {draw.choice(('true', 'false'))}"
        ),
        "prose": lambda: draw.choice(prose),
        "trace": lambda: (
            f'  File "/srv/app/{draw.choice(WHAT)}/{draw.choice(WHAT)}.py", line {draw.randint(3, 900)}, in '
            f"{draw.choice(WHAT)}_{draw.choice(WHAT)}\n    return self.{draw.choice(WHAT)}.{draw.choice(WHAT)}("
            f"{draw.choice(WHAT)}={draw.randint(0, 99)})"
        ),
        "json": lambda: (
            json.dumps(
                {
                    "id": draw.getrandbits(40),
                    draw.choice(WHAT): {"state": draw.choice(DID), "items": [draw.randint(0, 99) for _ in range(4)]},
                    "owner": draw.choice(WHAT),
                },
                indent=draw.choice((None, 2)),
            )
            + ","
        ),
        "csv": lambda: (
            f"{draw.randint(1, 9999)},{draw.choice(WHAT)},2026-0{draw.randint(1, 9)}-{draw.randint(10, 28)},"
            f"{draw.uniform(1, 900):.2f},{draw.choice(('paid', 'open', 'void'))},{draw.choice(WHAT)} {draw.choice(DID)}"
        ),
    }
    heads = {"csv": "id,kind,date,amount,state,note", "trace": "Traceback (most recent call last):", "json": "["}
    ends = {"trace": "TimeoutError: the queue did not answer in 30 seconds", "json": "{}]"}
    lines = [heads[kind]] if kind in heads else []
    while sum(map(len, lines)) < length:
        lines.append(pieces[kind]())
    text = "\n".join([*lines, *([ends[kind]] if kind in ends else [])])
    return (
        text[: text.rfind("\n", 0, length + 200)] if len(text) > length + 200 and "\n" in text[: length + 200] else text
    )
