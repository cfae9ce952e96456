"""A training of the model inside an agent of one's own is killed again and again, and ends as one that was not.

    python -m benchmarks.training.agent_kills [--kills 20] [--steps 16] [--seed 0] [--json FILE]

The agent is a function with a plain client of HTTP that asks twice: a question, and a summary in a conversation of its own. Its
training runs in a process that gets SIGKILL at drawn moments: half of them up to eight seconds after its start, the others up to
two seconds after a step that it made since. Each time the same call goes on. In the end, the weights, the numbers of each step,
and the ids, rewards and calls of each episode are compared with those of a training that nobody stopped, bit by bit, in serial
mode."""

from __future__ import annotations

import hashlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

from benchmarks.record import arguments, save
from benchmarks.speed.setting import machine
from benchmarks.training.interception import write_model
from keepworth import train
from keepworth.training.programs import Endpoint
from keepworth.training.run_folder import RunFolder
from keepworth.training.trained import find_weights
from keepworth.training.watch.progress import Progress

ROWS = [{"prompt": f"How many sheep are {n} and {n + 1}?"} for n in range(40)]
TIMINGS = ("time", "seconds")


def agent(row: dict[str, Any], endpoint: Endpoint) -> str:
    def ask(text: str) -> str:
        body = {"model": "any", "messages": [{"role": "user", "content": text}]}
        with httpx.Client(trust_env=False, timeout=120) as client:
            answer = client.post(f"{endpoint.openai}/chat/completions", json=body).raise_for_status().json()
        return str(answer["choices"][0]["message"]["content"] or "")

    first = ask(row["prompt"])
    return first + ask(f"Shorter: {first}")


def score(answer: str, row: dict[str, Any]) -> float:
    return (sum(map(ord, answer)) % 101) / 100


def run(model: str, runs: str, name: str, steps: int) -> None:
    """The training, from where it was stopped."""
    train(
        ROWS, agent=agent, reward=score, model=model, runs=runs, name=name, steps=steps, progress=Progress(),
        max_tokens=6, tasks_per_step=1, group_size=3, questions=2, threads=1, precision="fp32", learning_rate=1e-3,
        evaluate_every=20, checkpoint_every=1, patience=0,
    )  # fmt: skip


def contents(path: Path) -> dict[str, Any]:
    """Return the parts of a finished run by which two runs are compared."""
    folder = RunFolder.open(path)
    plain = [
        {name: value for name, value in row.items() if not name.startswith(TIMINGS)}
        for row in (*folder.metrics(), *folder.evals())
    ]
    episodes = [
        [stored.step, stored.arm, stored.episode.id, stored.episode.reward]
        + [[list(call.context), list(call.ids), list(call.logprobs)] for call in stored.episode.segments]
        for stored in folder.episodes()
    ]
    files = sorted(find_weights(folder, "policy").glob("*.safetensors"))
    return {
        "weights": [hashlib.sha256(file.read_bytes()).hexdigest() for file in files],
        "numbers": plain,
        "episodes": episodes,
    }


def rows_written(metrics: Path) -> int:
    return metrics.read_bytes().count(b"\n") if metrics.exists() else 0


def kill_once(words: list[str], metrics: Path, draw: random.Random) -> dict[str, Any] | None:
    """Starts the training and kills it; returns where, or None where it ended before."""
    before, begun = rows_written(metrics), time.monotonic()
    early = draw.random() < 0.5
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wait = draw.uniform(0, 8.0) if early else draw.uniform(0, 2.0)
    while not early and process.poll() is None and rows_written(metrics) <= before:
        time.sleep(0.01)
    until = time.monotonic() + wait
    while process.poll() is None and time.monotonic() < until:
        time.sleep(0.005)
    if process.poll() is not None:
        assert process.returncode == 0, process.communicate()[1].decode()[-2000:]
        return None
    process.send_signal(signal.SIGKILL)
    process.wait()
    return {
        "while": "in the first seconds" if early else "after a step",
        "rows": rows_written(metrics),
        "after": time.monotonic() - begun,
    }


def main() -> None:
    if "--run" in sys.argv:
        model, runs, name, steps = sys.argv[sys.argv.index("--run") + 1 :]
        run(model, runs, name, int(steps))
        return
    parser = arguments(__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    setting, draw, kills = machine(1), random.Random(asked.seed), list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as folder:
        model, runs = write_model(Path(folder) / "model", 64), Path(folder) / "runs"

        def words(name: str) -> list[str]:
            own = [sys.executable, "-m", "benchmarks.training.agent_kills", "--run"]
            return [*own, model, str(runs), name, str(asked.steps)]

        subprocess.run(words("straight"), check=True, stdout=subprocess.DEVNULL)
        print("the training that nobody stops has ended", flush=True)
        while len(kills) < asked.kills:
            killed = kill_once(words("killed"), runs / "killed" / "metrics.jsonl", draw)
            if killed is None:
                break
            kills.append(killed)
            print(
                f"{len(kills)}/{asked.kills}: killed while {killed['while']}, {killed['rows']} steps written",
                flush=True,
            )
        subprocess.run(words("killed"), check=True, stdout=subprocess.DEVNULL)
        straight, after = contents(runs / "straight"), contents(runs / "killed")
    equal = {name: straight[name] == after[name] for name in straight}
    print(f"{len(kills)} kills, {len(straight['episodes'])} episodes; equal: {equal}")
    record = {"kills": kills, "equal": equal, "episodes": len(straight["episodes"]), "steps": asked.steps}
    record |= {"seed": asked.seed, "machine": setting}
    command = (
        f"python -m benchmarks.training.agent_kills --kills {asked.kills} --steps {asked.steps} --seed {asked.seed}"
    )
    save(asked.json, {"command": command, **record})


if __name__ == "__main__":
    main()
