"""How long `keepworth learn` takes for trajectories of a made coding assistant, and whether a second time counts anything twice.

    python -m benchmarks.memory.logs --sessions 1000 --steps 20 --encoder minilm --json benchmarks/memory/logs.json

The logs are session files of Claude Code: a question of its own for each session, steps with outputs, and thanks or a
correction at the end.
"""

from __future__ import annotations

import json
import platform
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.record import arguments, most_resident, save
from keepworth import Memory
from keepworth.adapters.logs.learning import LogLearner
from keepworth.adapters.logs.reading import LogFiles
from keepworth.adapters.logs.survey import survey
from keepworth.memory import by_name
from keepworth.memory.scan import scan_of

VERBS = ("Repair", "Rename", "Speed up", "Document", "Test", "Remove", "Split", "Port")
THINGS = ("parser", "login page", "price table", "cache", "report", "importer", "mail queue", "release script")
ENDS = ("thanks, that works", "no, that is the wrong file", "now deploy it", "perfect")


def write(folder: Path, sessions: int, steps: int, seed: int) -> int:
    """Write session files, and return their bytes."""
    chance, size = random.Random(seed), 0
    for number in range(sessions):
        rows, base = list[dict[str, Any]](), {"sessionId": f"s{number}", "cwd": f"/home/ana/p{number % 20}"}

        def row(kind: str, content: Any, rows: list[dict[str, Any]] = rows, base: dict[str, str] = base) -> None:
            at = time.gmtime(1_777_900_000 + 3600 * int(base["sessionId"][1:]) + len(rows))
            stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", at)
            more = {"type": kind, "uuid": f"{base['sessionId']}.{len(rows)}", "timestamp": stamp}
            rows.append({**base, **more, "message": {"role": kind, "content": content}})

        task = f"{chance.choice(VERBS)} the {chance.choice(THINGS)} of customer {number}."
        row("user", f"{task} I use Python 3.{chance.randrange(8, 14)} there.")
        for step in range(steps):
            command = chance.choice(
                (f"pytest -q tests/test_{step}.py", f"sed -i s/a/b/ f{step}.py", "git status", "ls -l src")
            )
            failed = chance.random() < 0.2
            row("assistant", [{"type": "tool_use", "id": f"t{step}", "name": "Bash", "input": {"command": command}}])
            output = "x" * 400 + ("1 failed" if failed else "12 passed")
            row("user", [{"type": "tool_result", "tool_use_id": f"t{step}", "content": output, "is_error": failed}])
        row("assistant", [{"type": "text", "text": f"Customer {number} is done."}])
        row("user", chance.choice(ENDS))
        text = "".join(f"{json.dumps(entry)}\n" for entry in rows)
        (folder / f"s{number}.jsonl").write_text(text, encoding="utf-8")
        size += len(text)
    return size


def learn(folder: Path, file: Path, encoder: str) -> tuple[float, LogLearner]:
    """Survey and learn, as the command does, and return the seconds."""
    begun = time.perf_counter()
    survey(LogFiles([folder]))
    chosen = None if encoder == "none" else encoder
    with Memory(file, encoder=chosen) as memory:
        memory.writer, memory.store.scan = by_name.writer("statements"), scan_of("redact")
        learner = LogLearner(memory, user="ana")
        for _ in learner.learn(LogFiles([folder]).sessions()):
            pass
    return time.perf_counter() - begun, learner


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder, file = Path(place, "logs"), Path(place, "a.mem")
        folder.mkdir()
        size = write(folder, chosen.sessions, chosen.steps, chosen.seed)
        first, learner = learn(folder, file, chosen.encoder)
        again, repeated = learn(folder, file, chosen.encoder)
        counts = learner.learned
        record = {
            "sessions": chosen.sessions,
            "steps": chosen.steps,
            "encoder": chosen.encoder,
            "seed": chosen.seed,
            "megabytes": round(size / 1e6, 1),
            "seconds": round(first, 1),
            "turns": counts.new,
            "cases": counts.cases,
            "facts": counts.facts,
            "problems": len(counts.problems),
            "again_seconds": round(again, 1),
            "counted_twice": repeated.learned.new
            + repeated.learned.longer
            + repeated.learned.cases
            + repeated.learned.facts,
            "most_resident_mb": round(most_resident() / 2**20),
            "machine": f"{platform.machine()}, two shared cores",
        }
    print(json.dumps(record, indent=1))
    save(chosen.json, record)


if __name__ == "__main__":
    main()
