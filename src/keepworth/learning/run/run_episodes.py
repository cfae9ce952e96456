"""The episodes of a run on disk: a compressed file of JSON lines per step and arm, written whole or not at all."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from keepworth.episodes.codec import episode_from_json, episode_to_json
from keepworth.episodes.episode import Episode
from keepworth.episodes.errors import KeepworthError
from keepworth.learning.run.disk import disk, line, replacing

FOLDER = "episodes"
TRAIN = "train"
_NAME = re.compile(r"step-(\d{6,})\.([^/]+)\.jsonl\.gz")


@dataclass(frozen=True, slots=True)
class StoredEpisode:
    """An episode with the step it was run at and what for (`train`, or the arm of an evaluation)."""

    step: int
    arm: str
    episode: Episode


def write_episodes(run: Path, step: int, arm: str, episodes: Iterable[Episode]) -> Path:
    """All episodes of one step and arm, in one file; written again, it replaces what was there. Raises DiskTrouble."""
    if not arm or "/" in arm or arm.startswith("."):
        raise ValueError(f"the arm of an episode file is part of its name, so it cannot be {arm!r}")
    path = run / FOLDER / f"step-{step:06d}.{arm}.jsonl.gz"
    with disk(run):
        path.parent.mkdir(parents=True, exist_ok=True)
    with (
        disk(run),
        replacing(path) as temporary,
        open(temporary, "wb") as raw,
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed,
    ):
        for episode in episodes:
            packed.write(line(episode_to_json(episode)))
    return path


def stored_episodes(
    run: Path, *, step: int | None = None, arm: str | None = None, role: str | None = None
) -> Iterator[StoredEpisode]:
    """By step, then arm, then as written. Raises KeepworthError on a file that does not decompress, or holds something else."""
    for at, of, path in episode_files(run):
        if (step is not None and at != step) or (arm is not None and of != arm):
            continue
        try:
            with gzip.open(path, "rt", encoding="utf-8") as lines:
                records = [json.loads(text) for text in lines]
        except (OSError, EOFError, ValueError) as error:
            raise KeepworthError(f"{path} cannot be read ({error}).", "Delete the file to go on without it.") from error
        for number, record in enumerate(records, 1):
            try:
                if not isinstance(record, dict):
                    raise KeepworthError("It is not a JSON object.", "Delete the file to go on without it.")
                episode = episode_from_json(record)
            except KeepworthError as error:
                raise KeepworthError(f"{path} line {number}: {error.message}", error.fix) from error
            if role is None or episode.role == role:
                yield StoredEpisode(at, of, episode)


def episode_files(run: Path) -> list[tuple[int, str, Path]]:
    """(step, arm, path) of every episode file, in order. Files with other names are not ours: ignored."""
    found = [
        (int(match.group(1)), match.group(2), path)
        for path in (run / FOLDER).glob("step-*")
        if (match := _NAME.fullmatch(path.name))
    ]
    return sorted(found, key=lambda each: (each[0], each[1] != TRAIN, each[1]))
