"""How near an encoder puts texts that have nothing in common, so that its cosines can be read like those of any other.

Encoders differ: for some, texts without anything in common have a cosine of 0, for others of 0.7, and what tells them from
related ones is a few hundredths. Cosines are compared with scores of words and with fixed bounds, so they are put on one scale
first. Two of its points are known of every encoder: the mean cosine between the sentences of `unrelated.txt`, every two of
which are about different things, and 1, of a text with itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from keepworth.records.model import Encoder

if TYPE_CHECKING:
    from keepworth.base.arrays import Vectors
SENTENCES = tuple(files(__package__).joinpath("unrelated.txt").read_text("utf-8").splitlines())
"""Sentences of which every two are about different things."""


@dataclass(frozen=True, slots=True)
class Background:
    """How near an encoder puts texts that have nothing in common: their mean cosine, below 1."""

    unrelated: float

    def usual(self, cosines: Iterable[tuple[str, float]]) -> dict[str, float]:
        """Map cosines by id to the scale of all-MiniLM-L6-v2, for which the thresholds of searches were chosen."""
        stretch = self.stretch
        return dict(cosines) if self == USUAL else {id: 1.0 - (1.0 - cosine) * stretch for id, cosine in cosines}

    def native(self, cosine: float) -> float:
        """Map a cosine on the scale of all-MiniLM-L6-v2 back to this encoder's."""
        return cosine if self == USUAL else 1.0 - (1.0 - cosine) / self.stretch

    @property
    def stretch(self) -> float:
        return (1.0 - USUAL.unrelated) / (1.0 - self.unrelated)


USUAL = Background(0.038743)
"""That of all-MiniLM-L6-v2."""
KNOWN = {"all-minilm-l6-v2": USUAL}
"""Backgrounds by the name of the model, which need not be measured."""
ALIKE = 0.999
"""Mean cosine from which on an encoder cannot tell texts apart; its cosines are then not rescaled."""
_MEASURED: WeakKeyDictionary[Encoder, Background] = WeakKeyDictionary()


def background(encoder: Encoder, encode: Callable[[Sequence[str]], Vectors]) -> Background:
    """Return how near an encoder puts unrelated texts, if its identity does not say it measured once with `encode`, which maps
    texts to unit rows as an `Embedder` does."""
    scale = KNOWN.get(encoder.identity.model)
    with contextlib.suppress(TypeError):  # one that cannot be a key is measured again
        scale = scale or _MEASURED.get(encoder)
    if scale is None:
        scale = measured(encode)
        with contextlib.suppress(TypeError):
            _MEASURED[encoder] = scale
    return scale


def measured(encode: Callable[[Sequence[str]], Vectors]) -> Background:
    """Measure the mean cosine of pairs of `SENTENCES`."""
    try:
        vectors = encode(SENTENCES)
    except LookupError:  # an encoder that looks its vectors up, and knows no others
        return USUAL
    unrelated = float((vectors @ vectors.T)[np.triu_indices(len(SENTENCES), 1)].mean())
    return Background(unrelated) if unrelated < ALIKE else USUAL
