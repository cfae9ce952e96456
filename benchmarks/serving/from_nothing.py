"""How long it takes from an empty environment to the right note first, where nobody writes a line about rewards.

    python -m benchmarks.serving.from_nothing [--runs 4] [--rounds 40] [--json benchmarks/serving/from_nothing.json]

One command, `pip install keepworth claude-agent-sdk` into a fresh environment with an empty home (keepworth as the wheel of this
checkout), and one setting, `hooks=`, in the quick start of the Claude Agent SDK. The memory has two notes for each of four
questions: the command of the one that the search puts first works in 30 % of the cases, that of the other in 90 %. A round is a
session of the agent, which is asked the four questions in a new order. Its Claude Code is the SDK's own, and really runs the
commands; the model behind it is a script that runs the command of the first note about its question. Counted is for how many of
the four the right note stands before the other, round by round, and after how many seconds, the installation included, this is so
for three and stays so on average until the last round. Then the same where the first command never works and the other always
does, and the control, where the hooks that hear how commands end are left out.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.memory.engine import machine
from benchmarks.record import arguments, save
from keepworth.memory.headline import MARK
from tests.hosts.claude_agent_talk import Answers

ROOT = Path(__file__).parents[2]
SDK = next(
    line for line in (ROOT / "requirements" / "hosts.txt").read_text("utf-8").split() if line.startswith("claude-agent")
)
ENOUGH = 3
"""For how many of the four questions the right note has to stand first."""
NOTES = {
    "How do I build the docs?": ("Build the docs with: make html", "The documentation is made by: make site"),
    "How do I run the tests?": ("Run the tests with: make check", "The whole test suite is started by: make test"),
    "How do I format the code?": ("Format the code with: make format", "Source files are tidied by: make style"),
    "How do I deploy the service?": ("Deploy the service with: make deploy", "A release goes out by: make ship"),
}
"""For each question the note that is out of date, and the right one."""
PROGRAM = """
import asyncio, json
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient
from keepworth import Memory
from keepworth.adapters.claude_agent import KeepworthHooks

async def work(notes, rounds, deaf):
    memory = Memory("agent.mem")
    memory.add_many(notes)
    hooks = KeepworthHooks(memory).hooks
    hooks = {name: hook for name, hook in hooks.items() if not (deaf and "Tool" in name)}
    options = ClaudeAgentOptions(allowed_tools=["Bash"], hooks=hooks)
    for questions in rounds:
        async with ClaudeSDKClient(options) as client:
            for question in questions:
                await client.query(question)
                async for message in client.receive_response():
                    pass

asyncio.run(work(**json.load(open("work.json"))))
"""


class Reader(Answers):
    """A model that runs the command of the first note about its question, and says how it went.

    Args:
        folder: Where the agent works: the commands fail there while there is a file `broken`.
        draw: What decides whether a command works.
        works: How often the command of a right note does, and that of another.
    """

    def __init__(self, folder: Path, draw: random.Random, works: dict[bool, float]) -> None:
        super().__init__()
        self.broken, self.draw, self.works = folder / "broken", draw, works
        self.first: list[tuple[str, bool, float]] = []

    def stream(self, asked: dict[str, Any]) -> bytes:
        messages = asked["messages"]
        last = max((at for at, message in enumerate(messages) if message["role"] == "assistant"), default=-1)
        text = json.dumps(messages[last + 1 :], ensure_ascii=False)
        question = next((question for question in NOTES if question in text), "")
        if '"tool_result"' in text:
            self.answer = "It failed." if '"is_error": true' in text else "It is done."
        elif question:
            _, _, notes = text.partition(MARK)
            outdated, right = (notes.find(note) for note in NOTES[question])
            better = right >= 0 and (outdated < 0 or right < outdated)
            self.first.append((question, better, time.perf_counter()))
            self.broken.unlink(missing_ok=True)
            if self.draw.random() >= self.works[better]:
                self.broken.touch()
            self.answer = "I do not know."
            if better or outdated >= 0:
                self.calls = [("Bash", {"command": NOTES[question][better].rpartition(": ")[2]})]
        return super().stream(asked)


def install(folder: Path) -> tuple[Path, dict[str, str], float]:
    """Return the Python of a fresh environment, its variables, and the seconds that the installation took."""
    (folder / "home").mkdir()
    variables = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "HTTP", "http"))}
    variables |= {"PATH": os.environ["PATH"], "HOME": str(folder / "home")}
    wheel = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, ROOT]
    subprocess.run(wheel, env=variables, check=True)
    start = time.perf_counter()
    venv.create(folder / "venv", with_pip=True, symlinks=True)
    python = folder / "venv" / "bin" / "python"
    (file,) = folder.glob("keepworth-*.whl")
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-cache-dir", file, SDK], env=variables, check=True)
    return python, variables, time.perf_counter() - start


def run(
    python: Path, variables: dict[str, str], number: int, rounds: int, works: dict[bool, float], deaf: bool
) -> tuple[list[int], list[float]]:
    """Return for how many questions the right note stood first in each round, and the seconds at the end of each.

    Args:
        python: The Python of the environment.
        variables: Its variables.
        number: The number of the run, from which the order of the questions and the outcomes follow.
        rounds: How many there are.
        works: How often the command of a right note works, and that of another.
        deaf: Whether the hooks that hear how commands end are left out.
    """
    draw = random.Random(number)
    orders = [draw.sample(list(NOTES), len(NOTES)) for _ in range(rounds)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        reader = Reader(folder, draw, works)
        work = {"notes": [note for pair in NOTES.values() for note in pair], "rounds": orders, "deaf": deaf}
        (folder / "work.json").write_text(json.dumps(work), "utf-8")
        commands = [note.rpartition(": make ")[2] for pair in NOTES.values() for note in pair]
        rules = [f"{command}:\n\t@test ! -e broken && echo done\n" for command in commands]
        (folder / "Makefile").write_text("".join(rules), "utf-8")
        address = {"ANTHROPIC_BASE_URL": reader.url, "ANTHROPIC_API_KEY": "none", "CLAUDE_CONFIG_DIR": name}
        quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
        start = time.perf_counter()
        subprocess.run([python, "-c", PROGRAM], cwd=folder, env={**variables, **address, **quiet}, check=True)
    if [question for question, _, _ in reader.first] != [question for order in orders for question in order]:
        raise RuntimeError(f"the model was asked {len(reader.first)} questions, or in another order than the agent was")
    right, ends = [right for _, right, _ in reader.first], [at - start for _, _, at in reader.first]
    size = len(NOTES)
    return [sum(right[at : at + size]) for at in range(0, len(right), size)], ends[size - 1 :: size]


def reached(rounds: list[int], ends: list[float]) -> float | None:
    """Return the seconds until enough right notes stand first, from which on that is so on average; None if it is never so."""
    for at, count in enumerate(rounds):
        if count >= ENOUGH and np.mean(rounds[at:]) >= ENOUGH:
            return ends[at]
    return None


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--at-once", type=int, default=1, help="how many runs there are at once, which share the time")
    options = parser.parse_args()
    arms: dict[str, Any] = {}
    plans = [
        ("works in 90 and 30 %", {True: 0.9, False: 0.3}, False),
        ("works always and never", {True: 1.0, False: 0.0}, False),
        ("control: ends of commands not heard", {True: 0.9, False: 0.3}, True),
    ]
    with tempfile.TemporaryDirectory() as folder:
        python, variables, seconds = install(Path(folder))
        print(f"installed in {seconds:.0f} s", flush=True)
        with ThreadPoolExecutor(max_workers=options.at_once) as pool:
            begun = {
                name: [
                    pool.submit(run, python, variables, number, options.rounds, works, deaf)
                    for number in range(options.runs)
                ]
                for name, works, deaf in plans
            }
            for name, runs in begun.items():
                arms[name] = []
                for rounds, ends in (future.result() for future in runs):
                    at = reached(rounds, ends)
                    total = None if at is None else round(seconds + at)
                    outcome = {"right_first_of_4": rounds, "seconds_to_3_of_4": total, "seconds": round(ends[-1])}
                    arms[name].append(outcome)
                    print(f"{name:36} {outcome}", flush=True)
    record = {
        "command": "python -m benchmarks.serving.from_nothing",
        "machine": machine(),
        "command_of_the_user": f"pip install keepworth {SDK}",
        "setting_of_the_user": "ClaudeAgentOptions(hooks=KeepworthHooks(Memory('agent.mem')).hooks)",
        "install_seconds": round(seconds),
        "rounds_of_4_questions": options.rounds,
        "runs_at_once": options.at_once,
        "arms": arms,
    }
    save(options.json, record)


if __name__ == "__main__":
    main()
