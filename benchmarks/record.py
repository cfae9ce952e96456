"""What the benchmarks' commands share: how they are asked, and the JSON in which they leave what they measured."""

from __future__ import annotations

import argparse
import json
import resource
import sys
from pathlib import Path
from typing import Any


def arguments(about: str | None, *, json: bool = True) -> argparse.ArgumentParser:
    """A parser whose --help is what a file says of itself. json: whether it takes --json, the file to write."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    if json:
        parser.add_argument("--json", type=Path, help="the file to write the record to")
    return parser


def takes_nothing(about: str | None) -> None:
    """For a command without arguments: --help says what it does, and a word that it would not heed is refused."""
    arguments(about, json=False).parse_args()


def most_resident() -> int:
    """The most memory that this process had, in bytes. `getrusage` would count what the process that began it had."""
    try:
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return 1024 * int(status["VmHWM"].split()[0])
    except (OSError, KeyError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def save(path: Path | None, record: Any) -> None:
    """Leaves a record; nothing where no file was asked for."""
    if path is not None:
        path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
