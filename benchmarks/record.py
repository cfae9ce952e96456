"""What the benchmarks' commands share: how they are asked, and the JSON in which they leave what they measured."""

from __future__ import annotations

import argparse
import json
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


def save(path: Path | None, record: Any) -> None:
    """Leaves a record; nothing where no file was asked for."""
    if path is not None:
        path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
