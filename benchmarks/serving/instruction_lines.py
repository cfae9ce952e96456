"""How soon an experiment tells which lines of a CLAUDE.md help, through the hooks of a coding assistant.

    python -m benchmarks.serving.instruction_lines [--runs 3] [--turns 500] [--json benchmarks/serving/instruction_lines.json]

A file has eight lines. Three fit what is asked, each in a third of the turns: with the first the command of the turn ends well in
85 % of the cases and without it in 35 %, with the second it is the other way round, and the third changes nothing (60 %). The
experiment moves the lines into a served memory; each turn sends the events of Claude Code, in a session of its own. Counted is
after how many turns that a line fits `review` says of it what is so, and of how many lines it ever says what is not. The control
are outcomes that are coins.
"""

from __future__ import annotations

import contextlib
import os
import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.memory.engine import machine
from benchmarks.record import arguments, save
from benchmarks.serving.hook_signals import Session, serve
from keepworth.adapters.instructions import plan, restore, running_at, start
from keepworth.serving.access import Access

LINES = {
    "install": "- Install packages with uv sync",
    "deploy": "- Deploy the site with rsync to the mirror",
    "lint": "- Lint the code with ruff and fix what it finds",
}
OTHERS = [
    f"- The {room} is on floor {floor}" for floor, room in enumerate(("kitchen", "lab", "archive", "canteen", "office"))
]
ASKED = {
    "install": "install the packages of service {}",
    "deploy": "deploy the site of customer {}",
    "lint": "lint the code of module {}",
}
CHANCES = {"install": (0.85, 0.35), "deploy": (0.35, 0.85), "lint": (0.6, 0.6)}
"""By subject: how often the command ends well with the line, and without it."""
TRUTH = {"install": "earns", "deploy": "costs"}
EVERY = 30


def run(number: int, turns: int, *, coins: bool) -> dict[str, Any]:
    """Return after how many turns that a line fits its verdict stands, None where it never does, and the wrong verdicts."""
    draw, asked = random.Random(number), dict.fromkeys(ASKED, 0)
    decided: dict[str, int] = {}
    wrong = set[str]()
    with serve() as server, tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        memory = server.memories.of(Access("benchmark")).memory
        Path("CLAUDE.md").write_text("\n".join([*LINES.values(), *OTHERS, ""]), "utf-8")
        before = Path("CLAUDE.md").read_bytes()
        start(memory, plan(memory, [Path("CLAUDE.md")], user_id="ana"), user_id="ana")
        session = Session("claude-code", server.url, server.token, "ana", signals=True)
        for turn in range(turns):
            subject = draw.choice(list(ASKED))
            asked[subject] += 1
            text = session.send("prompt", prompt=ASKED[subject].format(draw.randrange(10_000)))
            with_it, without = CHANCES[subject]
            chance = 0.5 if coins else with_it if LINES[subject].removeprefix("- ") in text else without
            session.send("passed" if draw.random() < chance else "failed", tool_input={"command": "make check"})
            session.send("ends")
            if turn % EVERY == EVERY - 1:
                groups = {one.item.text: one.group for one in memory.review().items}
                for text, group in groups.items():
                    name = next((name for name, line in LINES.items() if line == f"- {text}"), "")
                    if group in ("earns", "costs") and (coins or TRUTH.get(name) != group):
                        wrong.add(text)
                    elif group == TRUTH.get(name):
                        decided.setdefault(name, asked[name])
        session.memory.close()
        running = running_at(Path("CLAUDE.md"))
        assert running is not None
        restore(memory, [running])
        assert Path("CLAUDE.md").read_bytes() == before
        assert sorted(os.listdir()) == ["CLAUDE.md"]
    return {"decided": {name: decided.get(name) for name in TRUTH}, "wrong": sorted(wrong)}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--turns", type=int, default=500)
    options = parser.parse_args()
    arms: dict[str, Any] = {}
    for name, coins in (("outcomes that depend on the lines", False), ("coins", True)):
        runs = [run(number, options.turns, coins=coins) for number in range(options.runs)]
        after = {line: [each["decided"][line] for each in runs] for line in TRUTH}
        decided = {line: [turns for turns in listed if turns is not None] for line, listed in after.items()}
        arms[name] = {
            "runs": options.runs,
            "turns": options.turns,
            "decided": {line: len(listed) for line, listed in decided.items()},
            "median turns that the line fits": {
                line: float(np.median(listed)) if listed else None for line, listed in decided.items()
            },
            "lines of which something wrong was said": sum(len(each["wrong"]) for each in runs),
            "lines": options.runs * (len(LINES) + len(OTHERS)),
        }
        print(name, arms[name], flush=True)
    save(
        options.json, {"command": "python -m benchmarks.serving.instruction_lines", "machine": machine(), "arms": arms}
    )


if __name__ == "__main__":
    main()
