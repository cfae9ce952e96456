"""What an installation costs: seconds and megabytes of the package alone and with extras, and how fast it starts.

    python -m benchmarks.install --extras train,serve --json benchmarks/install.json

A wheel of this folder is installed without a cache into fresh environments with an empty home, as pip is set up here.
Megabytes (10^6 bytes) are what that adds to an empty environment, pip's compiled files included. The weights of the encoder
are fetched at the first search, and are counted apart. Importing and `--help` are the quickest of five, in wall-clock seconds.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Any

from benchmarks.record import arguments, save

ROOT = Path(__file__).parents[1]
SEARCH = """
from keepworth import Memory
with Memory("agent.mem") as memory:
    memory.add("To reset the router hold the button.")
    memory.search("how do I reset the router")
"""


def megabytes(folder: Path) -> float:
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in files) / 1e6


def variables(home: Path) -> dict[str, str]:
    """pip's own settings, and nothing else of this user's."""
    pip = {key: value for key, value in os.environ.items() if key.startswith(("PIP_", "SSL_", "HTTP", "http"))}
    return {**pip, "PATH": os.environ["PATH"], "HOME": str(home)}


def timed(command: list[str | Path], folder: Path) -> float:
    began = time.perf_counter()
    subprocess.run(command, cwd=folder, env=variables(folder / "home"), check=True, capture_output=True)
    return time.perf_counter() - began


def measured(wheel: Path, extras: str, folder: Path) -> dict[str, Any]:
    """One installation in `folder`, which must be empty."""
    (folder / "home").mkdir()
    venv.create(folder / "venv", with_pip=True)
    programs, before = folder / "venv" / "bin", megabytes(folder / "venv")
    target = f"{wheel}[{extras}]" if extras else str(wheel)
    row: dict[str, Any] = {"extras": extras}
    row["install_seconds"] = round(timed([programs / "pip", "install", "-q", "--no-cache-dir", target], folder), 1)
    row["megabytes"] = round(megabytes(folder / "venv") - before, 1)
    listed = [programs / "pip", "list", "--format=json"]
    row["packages"] = len(json.loads(subprocess.run(listed, check=True, capture_output=True).stdout))
    timed([programs / "keepworth", "--help"], folder)
    for name, command in (
        ("import_seconds", [programs / "python", "-c", "import keepworth"]),
        ("help_seconds", [programs / "keepworth", "--help"]),
        ("python_seconds", [programs / "python", "-c", "pass"]),
    ):
        row[name] = round(min(timed(command, folder) for _ in range(5)), 3)
    row["first_search_seconds"] = round(timed([programs / "python", "-c", SEARCH], folder), 1)
    row["encoder_megabytes"] = round(megabytes(folder / "home" / ".cache" / "keepworth"), 1)
    row["next_search_seconds"] = round(timed([programs / "python", "-c", SEARCH], folder), 2)
    return row


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--extras", default="train,serve", help="what is installed in the second environment")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT)]
        subprocess.run(build, check=True)
        (wheel,) = folder.glob("keepworth-*.whl")
        rows = []
        for name, extras in (("alone", ""), ("full", given.extras)):
            (folder / name).mkdir()
            rows.append(measured(wheel, extras, folder / name))
            print(json.dumps(rows[-1]))
        size = round(wheel.stat().st_size / 1e6, 1)
    record = {
        "machine": platform.platform(),
        "python": platform.python_version(),
        "wheel_megabytes": size,
        "rows": rows,
    }
    save(given.json, record)


if __name__ == "__main__":
    main()
