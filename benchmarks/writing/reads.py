"""Let the frozen readers answer what is not on file yet: random banks to learn from, and the banks that measured writers
left.

    python -m benchmarks.writing.reads --random --world "4 of 16"     the log that learning starts from
    python -m benchmarks.writing.reads --wanted                          what the other commands of this folder found missing

It goes on where it stopped. The readers are those of `python -m benchmarks.writing.readers`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path

from keepworth.episodes.needs import needs_train

import torch

from benchmarks.writing.readers import frozen, shown
from benchmarks.writing.setting import BANKS, HERE, WORLDS, Reads, Stay, random_banks, reader_of, setting
from keepworth.tasks.fact_streams import FactStream
from keepworth.tasks.metrics import token_f1

WANTED = HERE.parent.parent / "runs" / "writing" / "wanted.json"
AT_ONCE = 64


def want(reads: Reads) -> None:
    """Write down what is missing, for `--wanted`; says how much."""
    WANTED.parent.mkdir(parents=True, exist_ok=True)
    asked = json.loads(WANTED.read_text()) if WANTED.exists() else []
    every = sorted({*((name, key, tuple(stay)) for name, key, stay in asked), *reads.wanted} - set(reads.known))
    WANTED.write_text(json.dumps(every) + "\n")
    if reads.wanted:
        print(
            f"{len(reads.wanted)} answers are not on file: run python -m benchmarks.writing.reads --wanted, then this again."
        )


def answered(
    todo: list[tuple[str, str, Stay]], runs: Path, reads: Reads, streams: Mapping[tuple[str, str], FactStream]
) -> None:
    """streams: by the name of their world and their key."""
    for which in (0, 1):
        own = sorted(each for each in todo if each not in reads.known and reader_of(streams[each[:2]]) == which)
        if not own:
            continue
        begun = time.monotonic()
        for start in range(0, len(own), AT_ONCE):
            if start % (16 * AT_ONCE) == 0:
                reader = frozen(runs, which)  # its cache would only grow
            part = own[start : start + AT_ONCE]
            queries = [(streams[each[:2]].task.input, shown(streams[each[:2]], each[2])) for each in part]
            for each, said in zip(part, reader.answers(queries), strict=True):
                reads.known[each] = round(token_f1(said, streams[each[:2]].task.answers), 4)
            reads.save()
            done = start + len(part)
            left = (time.monotonic() - begun) / done * (len(own) - done) / 60
            print(f"reader {which}: {done} of {len(own)}, about {left:.0f} min left", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/writing"))
    parser.add_argument("--random", action="store_true", help=f"{BANKS} evenly drawn banks of each stream")
    parser.add_argument("--world", choices=WORLDS, default="4 of 16")
    parser.add_argument("--wanted", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    reads, todo = Reads.on_file(), list[tuple[str, str, Stay]]()
    if options.random:
        world = setting(options.world)
        todo = [(world.name, world.streams[number].key, stay) for number, stay in random_banks(world, BANKS)]
    if options.wanted and WANTED.exists():
        todo += [(name, key, tuple(stay)) for name, key, stay in json.loads(WANTED.read_text())]
    streams = {(name, stream.key): stream for name in {each[0] for each in todo} for stream in setting(name).streams}
    answered([each for each in todo if each not in reads.known], options.runs, reads, streams)


if __name__ == "__main__":
    main()
