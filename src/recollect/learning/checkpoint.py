"""Checkpoint: what training continues from, complete or not there, with the sums that prove it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recollect.episodes.errors import RecollectError
from recollect.learning.disk import replacing_folder, sha256_of
from recollect.learning.json_rows import write_json

_NAME = re.compile(r"step-(\d{6,})")
_SUM = ("bytes", "sha256")


class CheckpointCorrupt(RecollectError):
    """A checkpoint's file is missing or differs from what was saved."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A folder that a trainer filled at `step`; complete, because it got its name last."""

    step: int
    path: Path

    def verify(self) -> None:
        """Compare every file with the manifest. Raises CheckpointCorrupt, naming the file and the way out."""
        mend = f"Delete {self.path} and start again: the run continues from the checkpoint before it."
        manifest = self.path / "manifest.json"
        for name, expected in _sums(manifest, mend).items():
            path = self.path / name
            if not path.is_file():
                raise CheckpointCorrupt(f"{path} is missing from the checkpoint of step {self.step}.", mend)
            size = path.stat().st_size
            if size != expected["bytes"]:
                raise CheckpointCorrupt(f"{path} has {size} bytes; {expected['bytes']} were saved.", mend)
            if sha256_of(path) != expected["sha256"]:
                raise CheckpointCorrupt(f"{path} is not what was saved: its sha256 differs.", mend)


def _sums(manifest: Path, mend: str) -> Mapping[str, Mapping[str, Any]]:
    try:
        files = json.loads(manifest.read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointCorrupt(f"{manifest} cannot be read ({error}).", mend) from error
    if not isinstance(files, dict) or any(
        not isinstance(each, dict) or any(key not in each for key in _SUM) for each in files.values()
    ):
        raise CheckpointCorrupt(f"{manifest} is not a list of files with their sizes and sums.", mend)
    return files


def checkpoints_in(folder: Path) -> list[Checkpoint]:
    """Complete checkpoints, oldest first (not verified). Whatever else lies in the folder is not ours: ignored."""
    found = [
        Checkpoint(int(match.group(1)), each)
        for each in folder.glob("step-*")
        if (match := _NAME.fullmatch(each.name)) and each.is_dir()
    ]
    return sorted(found, key=lambda each: each.step)


@contextmanager
def writing_checkpoint(folder: Path, step: int) -> Iterator[Path]:
    """A folder to fill; it becomes `folder/step-<step>`, with its manifest, when the block ends well."""
    with replacing_folder(folder / f"step-{step:06d}") as temporary:
        yield temporary
        files = sorted(each for each in temporary.rglob("*") if each.is_file())
        sums = {
            each.relative_to(temporary).as_posix(): {"sha256": sha256_of(each), "bytes": each.stat().st_size}
            for each in files
        }
        write_json(temporary / "manifest.json", {"step": step, "files": sums})
