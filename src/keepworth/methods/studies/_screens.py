"""Renders words on a screen, and reads them with an OCR model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from keepworth.base.arrays import Floats
from keepworth.base.errors import KeepworthError

Read = Callable[[Floats], str]
"""A picture as grey values, [rows, columns] -> its text."""


def draw_screen(word: str, style: Sequence[float], draw: np.random.Generator) -> Floats:
    """Returns the word as grey values, 0 to 255, [rows, columns]."""
    from PIL import Image, ImageDraw, ImageFilter, ImageFont

    size, noise, blur, contrast, slant = style
    picture = Image.new("L", (int(size * len(word) * 0.75) + 24, int(size) + 20), 255)
    ImageDraw.Draw(picture).text((10, 6), word, font=ImageFont.load_default(size), fill=int(255 * (1 - contrast)))
    picture = picture.transform(picture.size, Image.Transform.AFFINE, (1, slant, 0, 0, 1, 0), fillcolor=255)
    grey = np.asarray(picture.filter(ImageFilter.GaussianBlur(blur)), dtype=np.float64)
    return np.asarray(np.clip(grey + draw.normal(0, noise, grey.shape), 0, 255))


def look_of(picture: Floats) -> Floats:
    """Returns the picture in 8 x 32 cells minus their mean, as a unit vector: it replaces an image encoder."""
    from PIL import Image

    small = Image.fromarray(picture.astype(np.uint8)).resize((32, 8), Image.Resampling.BOX)
    cells = np.asarray(small, dtype=np.float64).ravel()
    cells -= cells.mean()
    return np.asarray(cells / max(float(np.linalg.norm(cells)), 1e-9))


def open_reader() -> Read:
    """Returns the recogniser of rapidocr. Raises KeepworthError where it is not installed."""
    try:
        from rapidocr_onnxruntime import RapidOCR  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError as error:
        raise KeepworthError(
            "This study reads screens with the package rapidocr-onnxruntime (Apache-2.0), which is not installed.",
            "pip install rapidocr-onnxruntime, or --set reader=letters, which misreads letters by chance.",
        ) from error
    model = RapidOCR(intra_op_num_threads=1, inter_op_num_threads=1)

    def read(picture: Floats) -> str:
        lines, _ = model(np.stack([picture.astype(np.uint8)] * 3, axis=-1), use_det=False, use_cls=False)
        return str(lines[0][0]).strip() if lines else ""

    return read
