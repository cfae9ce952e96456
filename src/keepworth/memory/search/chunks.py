"""Cuts a long text into parts, each of which gets a vector of its own.

An encoder reads the first few hundred word pieces of a text and no more, so the one vector of a long note says nothing of its
end. A long text is therefore cut at the ends of lines, sentences or, at the worst, words, and a search by meaning scores it by
its best part.

The best of many cosines is high by chance alone, so a long text would stand before a short one that says as much. The vector of a
part is therefore shorter than 1.
"""

from __future__ import annotations

import re
from bisect import bisect_left

from keepworth.memory.search.background import USUAL, Background

LONG = 900
"""Number of letters from which on a text is cut: about 200 word pieces; the default encoder reads 256."""
CHUNK = 450
"""Largest number of letters of a part."""
LINE = 250
"""Number of letters from which on a part ends at the end of a line, since the next line is often about something else."""
PIECE = 160
"""Largest number of letters of a piece, of which passages for a prompt are put together."""
WIDE = 4
"""A letter of a script in which letters are words or syllables counts as this many: encoders have a piece for each."""

PART = 0.75
"""Length of a part's vector, by the default encoder. On LongMemEval's questions for development long sessions are found with it
as with 1, and turns among longer ones as if there were no parts."""

NEAR = 0.5
"""Usual cosine of a question and its answer, by the default encoder."""

SHORT = LONG // WIDE
"""Number of letters up to which a text of any script is not cut."""

_WIDE = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\ud7ff\uf900-\ufaff\uff66-\uff9d\U00020000-\U0003ffff]"
)
_LINES = re.compile(r"\n+")
_ENDS = re.compile(r"\n+|(?<=[.!?…])[\"'”’)\]]*\s+|[。！？｡]+[」』”’]*\s*")
_GAPS = re.compile(r"\s+")


def spans(text: str) -> tuple[tuple[int, int], ...]:
    """Return the start and end of each part of a long text, in order; together they cover it. A short text has none.

    >>> spans("A short one.")
    ()
    """
    if len(text) <= SHORT:
        return ()
    weighed = _weighed(text)
    return () if weighed[-1] <= LONG else _cut(text, weighed, CHUNK, LINE)


def pieces(text: str) -> tuple[tuple[int, int], ...]:
    """Return the start and end of each piece of a text, in order; together they cover it. A piece is about a sentence or a line.

    >>> pieces("The port is 8443. Ask Ana.")
    ((0, 26),)
    """
    return _cut(text, _weighed(text), PIECE, PIECE // 3)


def _cut(text: str, weighed: list[int], chunk: int, line: int) -> tuple[tuple[int, int], ...]:
    """Cut a text into parts of at most `chunk` letters, which end at the end of a line if they have `line` letters by then."""
    sentences, lines = _cuts(text, _ENDS), _cuts(text, _LINES)
    out: list[tuple[int, int]] = []
    start = 0
    while start < len(text):
        most = bisect_left(weighed, weighed[start] + chunk + 1) - 1
        index = bisect_left(lines, bisect_left(weighed, weighed[start] + line))
        if index < len(lines) and lines[index] <= most:
            end = lines[index]
        else:
            end = len(text) if most >= len(text) else _last(sentences, start, most)
        if end <= start:
            gaps = [gap.end() for gap in _GAPS.finditer(text, start + 1, most)]
            end = gaps[-1] if gaps else max(most, start + 1)
        out.append((start, end))
        start = end
    return tuple(out)


def parts(text: str) -> list[str]:
    """Return the texts to encode for a text: the text itself, then its parts if it is long."""
    return [text, *(text[start:end] for start, end in spans(text))]


def weighed_length(text: str) -> int:
    """Return the number of letters of a text, wide ones counted as several."""
    return len(text) if text.isascii() else len(text) + (WIDE - 1) * len(_WIDE.findall(text))


def _weighed(text: str) -> list[int]:
    """Return how many letters stand before each position, wide letters counted as several. There is one position more than
    letters."""
    if text.isascii():
        return list(range(len(text) + 1))
    weights = [1] * len(text)
    for match in _WIDE.finditer(text):
        weights[match.start()] = WIDE
    out, total = [0], 0
    for weight in weights:
        total += weight
        out.append(total)
    return out


def _cuts(text: str, where: re.Pattern[str]) -> list[int]:
    """Return the positions behind all matches of a pattern."""
    return [match.end() for match in where.finditer(text)]


def _last(cuts: list[int], start: int, most: int) -> int:
    """Return the last cut after `start` and at most at `most`, or `start` if there is none."""
    index = bisect_left(cuts, most + 1) - 1
    return cuts[index] if index >= 0 and cuts[index] > start else start


def part_length(background: Background) -> float:
    """Return the length of a part's vector for an encoder with this background. With it, a part that is as near as the usual
    answer to a question counts as much as with the default encoder."""
    near = background.native(NEAR)
    if background == USUAL or near <= 0.0:
        return PART
    return min(1.0, max(PART, background.native(PART * NEAR) / near))
