"""The language of a text, by the runs of letters in it: a naive Bayes model over runs of 2 to 6 bytes.

Lui and Baldwin, "langid.py: An Off-the-shelf Language Identification Tool" (2012), as trained for py3langid 0.4 by Adrien
Barbaresi (BSD licence, beside the model). `languages.npz` holds of that model the languages that have stems here, as its own
file takes a quarter of a second and 100 MB to unpack (see `benchmarks/memory/language_model.py`).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class _Model:
    """The naive Bayes model of the languages `tags`. `keys` holds for each length the runs as ascending numbers, and the row of
    the first. `rows` are the log-probabilities of each run in each language, `first` the log-priors of the languages."""

    keys: dict[int, tuple[npt.NDArray[np.int64], int]]
    rows: npt.NDArray[np.float16]
    first: npt.NDArray[np.float32]
    tags: tuple[str, ...]


@cache
def _model() -> _Model:
    with (files(__package__) / "languages.npz").open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        keys, lengths, weights = np.cumsum(arrays["steps"]), arrays["lengths"], arrays["told"]
        rows = np.empty((len(keys), len(arrays["tags"])), np.float16)
        rows[:] = arrays["usual"]
        rows[weights] = arrays["values"][arrays["codes"]].T
        starts = np.searchsorted(lengths, np.arange(256)).tolist()
        tables = {n: (keys[starts[n] : starts[n + 1]], starts[n]) for n in range(2, int(lengths[-1]) + 1)}
        return _Model(tables, rows, arrays["first"], tuple(arrays["tags"].tolist()))


def classify(texts: Sequence[str]) -> list[tuple[str, float]]:
    """Return the likeliest language of each text, as a tag, and its probability. Where several runs end at one byte, the longest
    counts."""
    model = _model()
    normalised = [unicodedata.normalize("NFC", text.lower() if text.isupper() else text) for text in texts]
    parts = [text.encode("utf-8", "surrogatepass") for text in normalised]
    letters = np.frombuffer(b"".join(parts), np.uint8).astype(np.int64)
    lengths = np.array([len(part) for part in parts])
    of_text = np.repeat(np.arange(len(parts)), lengths)
    position = np.arange(len(letters)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    counted = np.full(len(letters), -1)
    runs, length = letters, 1
    for wanted, (keys, start) in model.keys.items():
        while length < wanted and len(runs):
            runs, length = runs[:-1] << 8 | letters[length:], length + 1
        rows = np.minimum(keys.searchsorted(runs), len(keys) - 1)
        there = (keys[rows] == runs) & (position[wanted - 1 :] >= wanted - 1)
        counted[wanted - 1 :][there] = rows[there] + start
    # Not `np.unique`, which loads another module first.
    named = np.sort((of_text * len(model.rows) + counted)[counted >= 0])
    firsts = np.flatnonzero(np.diff(named, prepend=-1))
    weights = np.log1p(np.diff(firsts, append=len(named)).astype(np.float32))
    of_text, rows = np.divmod(named[firsts], len(model.rows))
    begins = np.flatnonzero(np.diff(of_text, prepend=-1))
    out = [(model.tags[0], 1.0 / len(model.tags))] * len(texts)  # where nothing is counted, nothing is likelier
    if len(begins):
        sums = np.add.reduceat(weights[:, None] * model.rows[rows], begins, axis=0) + model.first
        scores = sums / np.sqrt(lengths[of_text[begins]].astype(np.float32))[:, None]
        likely = np.exp(scores - scores.max(axis=1, keepdims=True))
        likely /= likely.sum(axis=1, keepdims=True)
        for number, line in zip(of_text[begins].tolist(), likely, strict=True):
            best = int(line.argmax())
            out[number] = model.tags[best], float(line[best])
    return out
