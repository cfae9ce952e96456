"""How long a newcomer takes: each quick start of docs/quickstarts.md, from an empty environment to its proof.

    python -m benchmarks.agents.quickstarts --json benchmarks/agents/quickstarts.json [--only openai]

The blocks are run as they stand on the page, but for the printed token, a free port, and a stand-in for OpenAI on this machine.
The proof is what the block prints, and, where a model was asked, the bytes that the stand-in was sent. Seconds are of the wall
clock, and depend on the network: packages come from the index that pip is set up with, without a cache.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.agents.load import free_port
from benchmarks.record import arguments, save
from tests.serving.scripted_upstream import Script, upstream

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "quickstarts.md"
BLOCKS = re.compile(r"<!-- quickstart: (\w+) -->\n```sh\n(.*?)```\n\n```(python|bash)\n(.*?)```", re.S)
FACT = "Oslo"
OPENAI = "https://api.openai.com/v1"


def quickstarts() -> dict[str, tuple[list[str], str, str]]:
    """name -> (commands, language, block), as the page has them."""
    text = PAGE.read_text(encoding="utf-8")
    return {name: (commands.splitlines(), kind, block) for name, commands, kind, block in BLOCKS.findall(text)}


def variables(folder: Path) -> dict[str, str]:
    """pip's own settings and the environment's programs first; nothing else of this user's."""
    pip = {key: value for key, value in os.environ.items() if key.startswith(("PIP_", "SSL_", "REQUESTS_"))}
    path = os.pathsep.join((str(folder / "venv" / "bin"), os.environ["PATH"]))
    return {
        **pip,
        "PATH": path,
        "HOME": str(folder / "home"),
        "PIP_NO_CACHE_DIR": "1",
        "OPENAI_API_KEY": "of-the-upstream",
        "COLUMNS": "200",
    }


@contextmanager
def served(command: str, folder: Path, there: str) -> Iterator[tuple[str, str]]:
    """(port, token) of the server that a command of the page starts."""
    port = str(free_port())
    words = [there if word == OPENAI else word for word in shlex.split(command)]
    process = subprocess.Popen(
        [*words, "--port", port],
        cwd=folder,
        env=variables(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("token: "):
                yield port, line.split()[1]
                break
        else:
            raise SystemExit(f"{command} did not start:\n{''.join(lines)}")
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def proven(name: str, printed: str, script: Script) -> bool:
    """Whether the fact is in what the block printed as its proof, and, where a model was asked, in the bytes it was sent."""
    asked = name in ("openai", "langgraph")
    if FACT not in printed.partition("sent:" if asked else "found:")[2]:
        return False
    last = script.sent[-1].content.decode() if asked else ""
    return not asked or (FACT in last and "where I live" in last)


def run(name: str, folder: Path) -> dict[str, Any]:
    commands, kind, block = quickstarts()[name]
    script = Script(reply=lambda body: "I see.")
    (folder / "home").mkdir()
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    # `pip install ".[x]"` is said in the checkout.
    subprocess.run(
        [*shlex.split(commands[0]), "--quiet"], cwd=ROOT, env=variables(folder), check=True, stderr=subprocess.DEVNULL
    )
    installed = time.perf_counter() - began
    with upstream(script) as model:
        there = f"{model.url}/v1"

        def tried(port: str = "8000", token: str = "") -> str:
            text = block.replace("8000", port).replace("kw_...", token)
            command = ["python", "-c", text] if kind == "python" else ["bash", "-c", text]
            done = subprocess.run(
                command, cwd=folder, env=variables(folder), capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise SystemExit(f"{name} failed:\n{done.stderr[-3000:]}")
            return done.stdout

        if len(commands) == 2:
            with served(commands[1], folder, there) as (port, token):
                printed = tried(port, token)
        else:
            printed = tried()
    seconds = time.perf_counter() - began
    return {
        "commands": len(commands),
        "lines": len([line for line in block.splitlines() if line.strip()]),
        "seconds": round(seconds, 1),
        "installing": round(installed, 1),
        "proven": proven(name, printed, script),
        "printed": printed.strip()[-400:],
    }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--only", choices=sorted(quickstarts()))
    options = parser.parse_args()
    rows = {}
    for name in [options.only] if options.only else quickstarts():
        with tempfile.TemporaryDirectory() as folder:
            rows[name] = run(name, Path(folder))
        print(name, rows[name], flush=True)
    record = {
        "command": "python -m benchmarks.agents.quickstarts --json benchmarks/agents/quickstarts.json",
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "load": [round(value, 1) for value in os.getloadavg()],
        },
        "n": 1,
        "quickstarts": rows,
    }
    save(options.json, record)
    if not all(row["proven"] for row in rows.values()):
        raise SystemExit("not all are proven")


if __name__ == "__main__":
    main()
