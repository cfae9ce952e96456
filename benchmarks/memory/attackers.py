"""What people who write notes and also reward them can do to others who use the same memory.

    python -m benchmarks.memory.attackers --draws 20 --json benchmarks/memory/attackers.json

Ten people share 20 questions, each with a right note and a wrong one that names its words. Seven of them are honest: they ask,
follow the first note, and reward it by whether it was right. Three attack five of the questions: for each of these they add a
note that says what they want, and from then on ask these questions as often as the others ask any, and give 1 where one of their
notes stands first and 0 where another one does. What differs:

    self-reward        nothing more
    sleeper            in the first third they reward as honest people do
    drift              they begin as honest people, and the share of false rewards grows steadily to all
    again              after each tenth of the time they delete their notes and add them again
    copies             each of them adds four notes for a question, with other words
    edited             their notes are right at first; after a third of the time they change what the notes say

*attacked* is the share of honest searches of the five questions, in the last half, whose first note is the attackers'. *others*
is the success of honest people at the other questions, less that without attackers, in points of 100; *targets* the same at the
five. Means over draws with 95 % intervals.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.memory.engine import machine
from benchmarks.memory.learning import interval
from benchmarks.record import arguments, save
from keepworth import Memory

HONEST, ATTACKERS = tuple(f"person {n}" for n in range(7)), tuple(f"mallory {n}" for n in range(3))
TARGETS, LENGTH = 5, 1000
TASKS = (
    "reset the router",
    "descale a kettle",
    "renew my passport",
    "mute late alarms",
    "prune old roses",
    "export invoices",
    "pair headphones",
    "bleed radiators",
    "rotate api keys",
    "book squash courts",
    "clean suede shoes",
    "merge two branches",
    "water tomatoes",
    "report sick leave",
    "wrap fragile glass",
    "tune a violin",
    "archive mails",
    "sharpen knives",
    "claim travel costs",
    "restore backups",
)
ATTACKS = ("none", "self-reward", "sleeper", "drift", "again", "copies", "edited")
WAYS = ("hold the button", "pull the plug", "call the porter")
COPIES = ("", "at once: ", "as always, ", "the best is to ")


class Attack:
    """One run. Attackers want the porter to be called."""

    def __init__(self, kind: str, seed: int, policy: str | None = "default") -> None:
        self.kind, self.generator = kind, np.random.default_rng([21, seed])
        self.memory = Memory(encoder="hashing", policy=policy, **({} if policy is None else {"seed": seed}))
        self.learns = policy is not None
        self.right, self.theirs = dict[str, str](), dict[str, str]()
        for task in TASKS:
            pair = self.memory.add_many([f"to {task} {way}" for way in WAYS[:2]])
            self.right[task] = pair[int(self.generator.integers(2))].id
        self.targets = [str(task) for task in self.generator.choice(TASKS, TARGETS, replace=False)]

    def run(self) -> dict[str, float]:
        """Play it and return the shares of the last half."""
        attacked, targets, others = list[bool](), list[bool](), list[bool]()
        for time in range(LENGTH):
            if self.kind != "none":
                self.act(time)
            person, task = str(self.generator.choice(HONEST)), str(self.generator.choice(TASKS))
            good, wanted = self.ask(person, task, honest=True)
            if time >= LENGTH // 2:
                if task in self.targets:
                    attacked.append(wanted)
                (targets if task in self.targets else others).append(good)
        return {
            "attacked": float(np.mean(attacked)),
            "targets": float(np.mean(targets)),
            "others": float(np.mean(others)),
        }

    def ask(self, person: str, task: str, *, honest: bool) -> tuple[bool, bool]:
        """Ask and reward; return whether the first note was right, and whether it was the attackers'."""
        hits = self.memory.search(f"how do I {task}", top_k=1)
        first = hits[0]
        wanted = first.id in self.theirs and first.text.endswith(WAYS[2])
        good = first.id == self.right[task] or (first.id in self.theirs and not wanted)
        if self.learns:
            self.memory.reward(hits.decision, float(good if honest else first.id in self.theirs), by=person)
        return good, wanted

    def act(self, time: int) -> None:
        """What attackers do before a task: three of ten searches are theirs."""
        if time == 0 or (self.kind == "again" and time % (LENGTH // 10) == 0):
            for id in self.theirs:
                self.memory.forget(id)
            self.theirs.clear()
            self.write()
        if self.kind == "edited" and time == LENGTH // 3:
            for id, task in self.theirs.items():
                self.memory.update(id, f"to {task} {WAYS[2]}", repeat=True)
        if self.generator.random() < len(ATTACKERS) / len(HONEST):
            task, past = str(self.generator.choice(self.targets)), time / LENGTH
            false = {"sleeper": float(past > 1 / 3), "drift": past, "edited": float(past > 1 / 3)}.get(self.kind, 1.0)
            self.ask(str(self.generator.choice(ATTACKERS)), task, honest=bool(self.generator.random() >= false))

    def write(self) -> None:
        """Add the attackers' notes."""
        for task in self.targets:
            right = WAYS[int(self.memory.get(self.right[task]).text.endswith(WAYS[1]))]
            way = right if self.kind == "edited" else WAYS[2]
            for name in ATTACKERS:
                for copy in COPIES[: len(COPIES) if self.kind == "copies" else 1]:
                    item = self.memory.add(f"{copy}to {task} {way}", source=name, repeat=True)
                    self.theirs[item.id] = task


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--only", nargs="+", choices=ATTACKS[1:], help="these attacks; the file keeps its other rows")
    options = parser.parse_args()
    setting, rows, peace = machine(), dict[str, Any](), list[dict[str, float]]()
    for kind in ATTACKS if options.only is None else (ATTACKS[0], *options.only):
        runs = [Attack(kind, seed).run() for seed in range(options.draws)]
        peace = peace or runs
        rows[kind] = {"attacked": interval([run["attacked"] for run in runs], (0.0, 1.0))}
        for name in ("others", "targets"):
            lost = [100.0 * (run[name] - before[name]) for run, before in zip(runs, peace, strict=True)]
            rows[kind][name] = interval([run[name] for run in runs], (0.0, 1.0)) if kind == "none" else interval(lost)
        print(kind, rows[kind], flush=True)
    command = f"python -m benchmarks.memory.attackers --draws {options.draws}"
    if options.only and options.json:
        before = json.loads(Path(options.json).read_text())
        measured = {"command": f"{command} --only {' '.join(options.only)}", "revision": setting["revision"]}
        again = {kind: {**row, **measured} for kind, row in rows.items()}
        save(options.json, {**before, "attacks": {**before["attacks"], **again}})
    else:
        save(options.json, {"command": command, "machine": setting, "attacks": rows})


if __name__ == "__main__":
    main()
