"""Which environments of others train here as they are: each plays a few steps with a tiny model, or is refused with its reason.

    python -m benchmarks.training.hubs [--only WORD] [--steps 2] [--games 8] [--json FILE]

The environments are those in the wheels of TextArena (every game, in its first version), verifiers (its four tasksets) and
OpenEnv (the environment that `openenv init` writes, with 16 sessions in place of one; the wheel has no other). A game of several
players is refused, and what needs files from elsewhere by what misses them: nothing is downloaded. The tasksets that miss a list
of words are tried again with 57 words of ours. Of the games that can begin, `--games` are trained on, drawn with a fixed seed.
The model has random weights, so rewards say that an environment rewards, and not that it is learned. What is not TextArena's has
a process of its own, and 240 s.

It needs what `make test-hubs` installs."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from benchmarks.record import arguments, save
from benchmarks.speed.setting import machine
from benchmarks.training.interception import write_model

SECONDS = 240
ROWS = [{"prompt": "Play.", "seed": seed} for seed in range(24)]
TASKSETS = (
    *(
        f"textarena,game={game}"
        for game in ("Wordle-v0", "Wordle-v0-long", "Hangman-v0", "WordLadder-v0", "WordSearch-v0")
    ),
    "harbor",
    "nemo_gym",
)
WORDS = (
    "apple bread chair dance eagle flame grape house island jewel knife lemon music night ocean paper queen river stone table "
    "uncle voice water youth zebra cabin debut ember frost giant honey ivory juice karma latch maple noble olive piano quilt "
    "radio salad tiger urban vivid wheat yield cold cord card ward warm word wood food fool foot form farm"
)


def name_reason(message: str) -> str:
    """Return why something failed, on one line, without rules of asterisks and without folders of this machine."""
    plain = re.sub(r"(?<![\w:/])(?:/[\w.+-]+)+/", "", re.sub(r"\*{3,}", " ", message))
    return " ".join(plain.split())[:400]


def write_words(folder: Path) -> str:
    """A list of words where NLTK looks for its corpus."""
    corpus = folder / "corpora" / "words"
    corpus.mkdir(parents=True)
    for name in ("en", "en-basic", "README"):
        (corpus / name).write_text("\n".join(WORDS.split()) + "\n")
    return str(folder)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The environment that `openenv init` writes, served."""
    begun = [sys.executable, "-m", "openenv.cli", "init", "echo_box", "--output-dir", str(folder)]
    subprocess.run(begun, check=True, capture_output=True)
    app = folder / "echo_box" / "server" / "app.py"
    app.write_text(app.read_text().replace("max_concurrent_envs=1,", "max_concurrent_envs=16,"))
    port = "18211"
    server = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "echo_box.server.app:app", "--port", port, "--log-level", "critical"],
        cwd=folder,
    )
    time.sleep(20)
    yield f"http://127.0.0.1:{port}"
    server.terminate()
    server.wait()


def play(hub: str, name: str, model: str, steps: int, folder: str) -> dict[str, Any]:
    """Trains on one environment, and returns what came of it."""
    from keepworth import train
    from keepworth.base.errors import KeepworthError
    from keepworth.training.run_folder import RunFolder
    from keepworth.training.watch.progress import Progress

    how: dict[str, Any] = {"steps": steps, "tasks_per_step": 1, "group_size": 2, "questions": 2, "max_tokens": 24}
    how |= {
        "evaluate_every": steps,
        "checkpoint_every": steps,
        "precision": "fp32",
        "threads": 1,
        "patience": 0,
        "progress": Progress(),
        "runs": folder,
        "model": model,
    }
    try:
        if hub == "TextArena":
            import textarena

            run = train(ROWS, environment=lambda: textarena.make(name), turns=4, **how)
        elif hub == "OpenEnv":
            from openenv import GenericEnvClient

            run = train(ROWS, environment=lambda: GenericEnvClient(base_url=name), turns=4, **how)
        else:
            run = train(f"verifiers:{name}", agent_seconds=60, calls=4, **how)
    except KeepworthError as error:
        return {"outcome": "refused", "reason": name_reason(error.message)}
    except Exception as error:
        return {"outcome": "failed", "reason": name_reason(f"{type(error).__name__}: {error}")}
    episodes = [each.episode for each in RunFolder.open(run.path).episodes(arm="train")]
    rewards = [episode.reward for episode in episodes]
    return {
        "outcome": "trained",
        "steps": steps,
        "episodes": len(episodes),
        "answers": sum(len(episode.segments) for episode in episodes),
        "stops": dict(Counter(episode.stop.value for episode in episodes)),
        "rewards": [min(rewards), sum(rewards) / len(rewards), max(rewards)],
    }


def begin(name: str) -> dict[str, Any]:
    """Makes a game of TextArena and begins it for one player."""
    import textarena

    from keepworth.base.errors import KeepworthError
    from keepworth.worlds.bridges import adapt
    from keepworth.worlds.own import own_tasks

    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        try:
            adapt(lambda: textarena.make(name), own_tasks(ROWS, by_row=True).all[0])
        except KeepworthError as error:
            return {"outcome": "refused", "reason": name_reason(error.message)}
    return {"outcome": "begins"}


def attempt(hub: str, name: str, model: str, steps: int, data: str) -> dict[str, Any]:
    """Plays one environment, in a process of its own where it may start others."""
    with tempfile.TemporaryDirectory() as folder:
        if hub == "TextArena":
            with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
                return play(hub, name, model, steps, folder)
        words = [sys.executable, "-m", "benchmarks.training.hubs", "--one", hub, name, model, str(steps), folder]
        environment = {**os.environ, "NLTK_DATA": data, "OMP_NUM_THREADS": "1"}
        try:
            ended = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, env=environment)
        except subprocess.TimeoutExpired:
            return {"outcome": "failed", "reason": f"not done in {SECONDS} s"}
        for line in reversed(ended.stdout.splitlines()):
            if line.startswith('{"outcome"'):
                row: dict[str, Any] = json.loads(line)
                return row
        lines = [line for line in ended.stderr.splitlines() if line.strip()]
        return {"outcome": "failed", "reason": name_reason((lines or ["it ended without a word"])[-1])}


def main() -> None:
    if "--one" in sys.argv:
        hub, name, model, steps, folder = sys.argv[sys.argv.index("--one") + 1 :]
        print(json.dumps(play(hub, name, model, int(steps), folder)))
        return
    from importlib.metadata import version

    parser = arguments(__doc__)
    parser.add_argument("--only", default="", help="environments whose name holds this")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--games", type=int, default=8, help="how many games of TextArena are trained on")
    options = parser.parse_args()
    from textarena.envs.registration import ENV_REGISTRY

    setting, rows = machine(1), []
    with tempfile.TemporaryDirectory() as folder:
        model = write_model(Path(folder) / "model", 64, positions=8192)
        data = write_words(Path(folder) / "nltk")
        with served(Path(folder)) as echo:
            games = sorted(name for name in ENV_REGISTRY if name.endswith("-v0"))
            begun = {name: begin(name) for name in games}
            playable = [name for name in games if begun[name]["outcome"] == "begins"]
            drawn = random.Random(0).sample(playable, min(options.games, len(playable)))
            resets = json.dumps([{"episode_id": str(number)} for number in range(6)])
            named = [
                *(("TextArena", name, name, "") for name in games),
                *(("verifiers", name, name, "") for name in TASKSETS),
                *(("verifiers", f"{name}, with words", name, data) for name in TASKSETS if "textarena" in name),
                ("verifiers", "openenv, echo", f"openenv,base_url={echo},resets={resets}", ""),
                ("OpenEnv", "echo", echo, ""),
            ]
            for hub, title, name, words in named:
                if options.only not in f"{hub} {title}":
                    continue
                known = begun.get(name, {}) if name not in drawn else {}
                row = {"hub": hub, "environment": title, **(known or attempt(hub, name, model, options.steps, words))}
                rows.append(row)
                print(f"{hub} {title}: {row['outcome']} {row.get('reason', row.get('rewards'))}", flush=True)
    counts = {
        hub: dict(Counter(row["outcome"] for row in rows if row["hub"] == hub))
        for hub in dict.fromkeys(row["hub"] for row in rows)
    }
    print(counts)
    packages = {name: version(name) for name in ("textarena", "verifiers", "openenv")}
    record = {"counts": counts, "rows": rows, "versions": packages, "steps": options.steps, "machine": setting}
    command = f"python -m benchmarks.training.hubs --games {options.games} --steps {options.steps}"
    command += f" --only {options.only}" if options.only else ""
    save(options.json, {"command": command, **record})


if __name__ == "__main__":
    main()
