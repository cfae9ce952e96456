"""Checkpoint: what training continues from, complete or not there, with the sums that prove it."""

from __future__ import annotations

import json
import pickle
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keepworth.episodes.errors import KeepworthError
from keepworth.episodes.extras import require
from keepworth.learning.run.disk import replacing_folder, write_json
from keepworth.models.files import sha256_of

LEARNER = "learner.pt"
_NAME = re.compile(r"step-(\d{6,})")
_SUM = ("bytes", "sha256")


class CheckpointCorrupt(KeepworthError):
    """A checkpoint's file is missing or differs from what was saved."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A folder that a trainer filled at `step`; complete, because it got its name last."""

    step: int
    path: Path

    def verify(self) -> None:
        """Compare every file with the manifest. Raises CheckpointCorrupt, naming the file and the way out."""
        fix = f"Delete {self.path} and start again: the run continues from the checkpoint before it."
        manifest = self.path / "manifest.json"
        for name, expected in _sums(manifest, fix).items():
            path = self.path / name
            if not path.is_file():
                raise CheckpointCorrupt(f"{path} is missing from the checkpoint of step {self.step}.", fix)
            size = path.stat().st_size
            if size != expected["bytes"]:
                raise CheckpointCorrupt(f"{path} has {size} bytes; {expected['bytes']} were saved.", fix)
            if sha256_of(path) != expected["sha256"]:
                raise CheckpointCorrupt(f"{path} is not what was saved: its sha256 differs.", fix)


def _sums(manifest: Path, fix: str) -> Mapping[str, Mapping[str, Any]]:
    try:
        files = json.loads(manifest.read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointCorrupt(f"{manifest} cannot be read ({error}).", fix) from error
    if not isinstance(files, dict) or any(
        not isinstance(each, dict) or any(key not in each for key in _SUM) for each in files.values()
    ):
        raise CheckpointCorrupt(f"{manifest} is not a list of files with their sizes and sums.", fix)
    return files


def read_learner(checkpoint: Checkpoint, *, mapped: bool = False) -> dict[str, Any]:
    """The state that a learner left in the checkpoint: tensors and plain values, never code.

    mapped: tensors stay on disk until they are read. Raises CheckpointCorrupt where there is none, it holds something
    else, or it was written by a version that saved other things."""
    require("llm", "A learner's checkpoint", "torch")
    import torch

    path = checkpoint.path / LEARNER
    with reading(path, checkpoint):
        state = torch.load(path, weights_only=True, mmap=mapped)
        if not isinstance(state, dict) or not isinstance(state.get("learner"), dict):
            raise ValueError("it holds no learner")
    return state


@contextmanager
def reading(path: Path, checkpoint: Checkpoint) -> Iterator[None]:
    """Turns whatever a file of the checkpoint makes its reader raise into CheckpointCorrupt, with the way out.

    It has the sum that was saved: another version wrote it, or somebody who wrote the sums as well."""
    try:
        yield
    except KeepworthError:
        raise
    except pickle.UnpicklingError as error:
        # torch's own words here tell the reader to switch the protection off.
        raise _unreadable(path, "it holds something else than tensors and plain values", checkpoint) from error
    except KeyError as error:
        raise _unreadable(path, f"it has no {error}: another version wrote it", checkpoint) from error
    except RuntimeError as error:
        if "memory" in str(error):  # want of memory, not a fault of the file
            raise
        raise _unreadable(path, error, checkpoint) from error
    except (
        OSError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        EOFError,
        OverflowError,
        zipfile.BadZipFile,
    ) as error:
        raise _unreadable(path, error, checkpoint) from error


def _unreadable(path: Path, why: object, checkpoint: Checkpoint) -> CheckpointCorrupt:
    reason = str(why).splitlines()[0] if str(why) else repr(why)
    return CheckpointCorrupt(
        f"{path} has the sum that was saved, but cannot be read ({reason}).",
        f"Delete {checkpoint.path} and start again: the run continues from the checkpoint before it.",
    )


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
