"""The way out to a model: what is found becomes a block of lines within a budget of tokens.

A short note is one line, whole. Of a long one the line holds the passage that fits the question. Every way out uses this: the
text of hits, the gateway, hooks, the tools of MCP, the answers over HTTP, and agents. Nothing is dropped without a word: a
`PromptBlock` says which notes are whole, which are cut, and which had no room.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol
from unicodedata import combining, normalize

from keepworth.base.text import as_line
from keepworth.memory.headline import TOKENS, without_headline
from keepworth.memory.item import Item
from keepworth.memory.search.chunks import PIECE, pieces
from keepworth.memory.search.question import read
from keepworth.memory.search.terms import telling, words

LEAST = 360
"""The bytes that each long note gets, best first, before what is left is shared out: some two or three sentences."""
FEWEST = 120
"""The fewest bytes for which a note is begun where less than `LEAST` is left."""
SHORTEST = 60
"""The fewest bytes of the only note that there is room for: fewer say next to nothing."""
GAP = "..."
"""Stands in a line where words of the note are left out."""
LETTERS = 6
"""The letters of a stem that are compared, so that endings that the stemmer does not know do not matter."""
LONGEST = 20_000
"""The letters up to which all of a text is looked at piece by piece; of a longer one the best windows are."""
WINDOW = 2_000
MOST_KEYS = 32
"""The words at the beginning and at the end of a question by which windows are chosen."""
FUNCTION_WORD = 0.2
"""What a function word counts for a passage, where another word counts 1."""


class FoundItem(Protocol):
    """What a search finds: a `Hit`, or anything with its item and, of a long text, the part that is nearest to the question."""

    @property
    def item(self) -> Item: ...
    @property
    def span(self) -> tuple[int, int] | None: ...


@dataclass(frozen=True, slots=True)
class PromptBlock:
    """Lines for a prompt, best first, and what became of each note.

    Args:
        lines: The line of each note, by its id. A note whose line would repeat another has none.
        whole: Ids of notes that are shown whole, here or in what the prompt holds already.
        cut: Ids of notes of which a passage is shown.
        missing: Ids of notes for which there was no room.
        last: A line that a policy adds to the text.
    """

    lines: Mapping[str, str] = field(default_factory=dict)
    whole: tuple[str, ...] = ()
    cut: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    last: str = ""

    @property
    def text(self) -> str:
        """Return the lines as one text."""
        return "\n".join([*self.lines.values(), *filter(None, (self.last,))])

    @property
    def shown_ids(self) -> tuple[str, ...]:
        """Return the ids of all notes that are shown, whole or cut."""
        return (*self.whole, *self.cut)


def tokens_of(text: str) -> int:
    """Return a bound on the tokens of a message, for English and most tokenizers: one for three bytes of UTF-8, plus four."""
    return -(-len(text.encode()) // 3) + 4


def block(
    hits: Sequence[FoundItem],
    query: str = "",
    tokens: int = TOKENS,
    *,
    head: str = "",
    last: str = "",
    there: Mapping[str, str] | None = None,
) -> PromptBlock:
    """Return lines for a prompt that show as much of the hits as `tokens` allow, so that `tokens_of` of `head`, a line break and
    the lines is never more.

    Short notes stay whole; the long ones share what is left, each with the passage that fits the question. If there is not even
    room for a short passage of each, the best have it; the very first gets what room there is. What fits stays so: any of the
    hits that are shown fit together again, so a filter of a search (`fits=`) may let those through, and the block is made of the
    ones that are chosen:

        fits = lambda hits: [hit for hit in hits if hit.item.id not in block(hits, query, tokens).missing]
        shown = block(memory.search(query, fits=fits), query, tokens)

    Args:
        hits: Best first. The items of the kind core of a search's `Hits` come before them. Their `span`, if a search set one,
            says which part is nearest in meaning; their `share`, if it set one, is the most of the budget that a long note gets,
            but each gets `FEWEST` bytes where there is room.
        query: The question, whose words also say which part fits; "" if there is none.
        tokens: The budget.
        head: The line that will stand before the block, which counts as well.
        last: A line that the block ends with, which counts as well.
        there: The lines that the prompt holds already, by ids of their items. A note that one of them shows costs nothing, and
            gets no new line.
    """
    query = read(query).asks  # the words of what was pasted beside it say little of which part fits
    if core := getattr(hits, "core", ()):  # of a search: what is always shown comes first
        first = [_Line(item) for item in core]
        always = {item.id for item in core}
        hits = [*first, *(hit for hit in hits if hit.item.id not in always)]
    room = 3 * (tokens - 4) - sum(len(line.encode()) + 1 for line in (head, last) if line) + 1
    budget = room
    held, twins = set((there or {}).values()), dict[str, str]()
    wholes, sizes, most, shares = dict[str, str](), dict[str, int](), dict[str, int](), dict[str, int]()
    whole, cut, missing = set[str](), set[str](), set[str]()
    for hit in hits:
        id, text = hit.item.id, hit.item.text
        # What is many times as long as the budget is never whole, so that it need not be made a line.
        line = wholes[id] = without_headline(f"- {as_line(text)}") if len(text) <= 9 * tokens else ""
        size = sizes[id] = len(line.encode()) + 1 if line else len(text)
        most[id] = size if size <= LEAST else min(size, max(FEWEST, int(budget * getattr(hit, "share", 1.0))))
        if line in held:
            whole.add(id)
        elif line in twins:
            continue  # shown by the same line
        elif room >= min(size, FEWEST if shares else SHORTEST + 1):
            shares[id] = min(most[id], LEAST, room)
            room -= shares[id]
            twins |= {line: id} if line else {}
        else:
            missing.add(id)
    _share_out(room, shares, most)
    lines: dict[str, str] = {}
    for hit in hits:
        id = hit.item.id
        if id not in shares:
            continue
        if sizes[id] <= shares[id]:
            lines[id] = wholes[id]
            whole.add(id)
        elif line := without_headline(_passage(hit, query, shares[id] - 1)):
            cut.add(id)
            if line not in held:
                lines[id] = line
        else:
            missing.add(id)
    order = [hit.item.id for hit in hits]
    for id in order:
        if id not in shares and wholes[id] in twins:  # what becomes of one becomes of the other
            for ids in (whole, cut, missing):
                if twins[wholes[id]] in ids:
                    ids.add(id)
    return PromptBlock(
        lines,
        tuple(id for id in order if id in whole),
        tuple(id for id in order if id in cut),
        tuple(id for id in order if id in missing),
        last,
    )


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of a text that a policy has made, as if it were found."""

    item: Item
    span: None = None


def block_of_lines(
    text: str, ids: Sequence[str], query: str, tokens: int, *, last: str = "", core: Sequence[Item] = ()
) -> PromptBlock:
    """Return a block of the lines that a policy has made of notes. Within the budget they stay as they are. Beyond it,
    each line counts as a note.

    Args:
        text: The lines.
        ids: The notes that they show; which one a line shows is only known if there are as many lines.
        query: What was asked, which decides the passages of long lines.
        tokens: The budget.
        last: A line that stands at the end in any case; "" for none.
        core: Items that stand before all others.
    """
    if core:
        first = block([_Line(item) for item in core], query, tokens)
        text = "\n".join(line for line in text.split("\n") if line not in first.lines.values())
        spent = -(-(len(first.text.encode()) + 1) // 3)
        rest = block_of_lines(text, [id for id in ids if id not in first.shown_ids], query, tokens - spent, last=last)
        parts = ((*getattr(first, name), *getattr(rest, name)) for name in ("whole", "cut", "missing"))
        whole, cut, missing = parts
        return PromptBlock({**first.lines, **rest.lines}, whole, cut, missing, last)
    listed = text.split("\n") if text else []
    names = list(ids) if len(listed) == len(ids) else [f"line {number}" for number in range(1, len(listed) + 1)]
    if tokens_of("\n".join(filter(None, (text, last)))) <= tokens:
        return PromptBlock(dict(zip(names, listed, strict=True)), tuple(ids), last=last)
    notes = [_Line(Item(name, line.removeprefix("- "))) for name, line in zip(names, listed, strict=True)]
    made = block(notes, query, tokens, last=last)
    return made if names == list(ids) else PromptBlock(made.lines, cut=tuple(ids), last=last)


def _share_out(room: int, shares: dict[str, int], most: Mapping[str, int]) -> None:
    """Raise the shares of notes that may have more, all by the same number of bytes at most, until the room is used."""
    wanting = sorted((id for id in shares if most[id] > shares[id]), key=lambda id: most[id] - shares[id])
    for number, id in enumerate(wanting):
        more = min(most[id] - shares[id], room // (len(wanting) - number))
        shares[id] += more
        room -= more


def part_from(text: str, start: int = 0, tokens: int = TOKENS) -> tuple[str, int]:
    """Return as much of a text as a budget allows, as it stands, and where the rest begins: 0 if there is none.

    >>> part_from("one two three", tokens=8)
    ('one two ', 8)

    Args:
        text: The whole text.
        start: The character at which the part begins.
        tokens: The budget.
    """
    most = max(0, 3 * (tokens - 4))
    taken = text[start : start + most].encode()[:most].decode(errors="ignore")
    end = start + len(taken)
    if end >= len(text):
        return taken, 0
    words_only = taken[: max(taken.rfind(" "), taken.rfind("\n")) + 1]
    return (words_only, start + len(words_only)) if 2 * len(words_only) > len(taken) else (taken, end)


def nearest_piece(text: str, query: str) -> tuple[int, int] | None:
    """Return start and end of the piece of a text that has most of the words of a query, or None if none has any."""
    listed = _pieces_near(text, query, None)
    scores = _scores([text[start:end] for start, end in listed], query)
    best = max(scores, default=0.0)
    return listed[scores.index(best)] if best > 0.0 else None


def _passage(hit: FoundItem, query: str, most: int) -> str:
    """Return a line of at most `most` bytes with the parts of a long text that fit a question; "" if there is no room for any.

    It begins with the piece that has most of the question's words, and the best piece of the part that is nearest in meaning, and
    grows to both sides."""
    text = hit.item.text
    listed = _pieces_near(text, query, hit.span)
    chosen = set[int]()
    line = ""
    spent = len(f"- {GAP} {GAP}")
    for index in _order_by_fit(listed, _scores([text[start:end] for start, end in listed], query), hit.span):
        # A piece costs its own bytes, a blank, and a gap if it lies alone.
        spent += len(as_line(text[slice(*listed[index])]).encode()) + 1
        spent += 0 if {index - 1, index + 1} & chosen else len(GAP) + 1
        if spent > most and chosen:
            break
        longer = _line(text, listed, sorted({*chosen, index}))
        if len(longer.encode()) > most:
            return line or _shorten(longer, most)
        chosen.add(index)
        line = longer
    return line


def _pieces_near(text: str, query: str, span: tuple[int, int] | None) -> list[tuple[int, int]]:
    """Return the pieces of a text; of a very long one those around the part that is nearest in meaning, and around the windows
    that have most of the question's words."""
    if len(text) <= LONGEST:
        return list(pieces(text))
    windows = [(start, min(len(text), start + WINDOW)) for start in range(0, len(text), WINDOW)]
    keys = list(dict.fromkeys(key for _, key in _keys(query)))
    having = [
        {key for key in {*keys[:MOST_KEYS], *keys[-MOST_KEYS:]} if key in plain}
        for plain in map(_fold, (text[start:end] for start, end in windows))
    ]
    scores = _weigh(having, {})
    near = set() if span is None else {span[0] // WINDOW, (span[1] - 1) // WINDOW}
    near |= set(sorted(range(len(windows)), key=lambda index: (-scores[index], index))[:2])
    out: list[tuple[int, int]] = []
    for index in sorted({side for one in near for side in (one - 1, one, one + 1) if 0 <= side < len(windows)}):
        start, end = (_word_boundary(text, at) for at in windows[index])
        out += [(start + first, start + last) for first, last in pieces(text[start:end])]
    return out


def _word_boundary(text: str, at: int) -> int:
    """Return a place near `at` at which a text may be cut."""
    blank = max(text.rfind(mark, max(0, at - PIECE), at) for mark in (" ", "\n"))
    return at if at >= len(text) or blank < 0 else blank + 1


def _order_by_fit(
    listed: Sequence[tuple[int, int]], scores: Sequence[float], span: tuple[int, int] | None
) -> Iterator[int]:
    """Yield the indices of pieces in the order in which they are taken into a passage."""
    best = max(range(len(listed)), key=lambda index: (scores[index], -index))
    starts = [best] if scores[best] > 0.0 else []
    if span is not None:
        inside = [index for index, (start, end) in enumerate(listed) if start < span[1] and end > span[0]]
        near = max(inside, key=lambda index: (scores[index], -index), default=best)
        # What is nearest in meaning comes first, unless another piece has more than twice as many of the words.
        starts = [near, *starts] if 2.0 * scores[near] >= scores[best] or not starts else [*starts, near]
    starts = list(dict.fromkeys(starts)) or [0]
    taken = set[int]()
    for distance in range(len(listed)):
        for index in (side for start in starts for side in (start + distance, start - distance)):
            if 0 <= index < len(listed) and index not in taken:
                taken.add(index)
                yield index


def _line(text: str, listed: Sequence[tuple[int, int]], chosen: Sequence[int]) -> str:
    """Return the line that shows the chosen pieces, in their order, with a mark where something is left out."""
    runs: list[tuple[int, int]] = []
    for index in chosen:
        start, end = listed[index]
        if runs and runs[-1][1] == start:
            runs[-1] = (runs[-1][0], end)
        else:
            runs.append((start, end))
    passage = f" {GAP} ".join(as_line(text[start:end]) for start, end in runs)
    begins = f"{GAP} " if runs[0][0] > 0 else ""
    ends = f" {GAP}" if runs[-1][1] < len(text) else ""
    return f"- {begins}{passage}{ends}"


def _shorten(line: str, most: int) -> str:
    """Return the beginning of a line, at most `most` bytes with a mark at its end; "" if that is next to nothing."""
    if most < SHORTEST:
        return ""
    begins = line.encode()[: most - len(GAP) - 1].decode(errors="ignore")
    return f"{begins.rsplit(' ', 1)[0] if ' ' in begins[len(begins) // 2 :] else begins} {GAP}"


def _scores(texts: Sequence[str], query: str) -> list[float]:
    """Return for each text the sum of the weights of the question's words in it. A word that fewer of the texts have weighs
    more."""
    asked = {key: 1.0 if telling(word) else FUNCTION_WORD for word, key in _keys(query)}
    if not asked:
        return [0.0] * len(texts)
    return _weigh([{key for _, key in _keys(text)}.intersection(asked) for text in texts], asked)


def _weigh(having: Sequence[Collection[str]], counts: Mapping[str, float]) -> list[float]:
    """Return for each text the sum of the weights of the words that it has, from how many of the texts have each."""
    frequency = Counter(key for keys in having for key in keys)
    weights = {
        key: counts.get(key, 1.0) * math.log(1.0 + (len(having) - count + 0.5) / (count + 0.5))
        for key, count in frequency.items()
    }
    return [sum(weights[key] for key in keys) for keys in having]


def _fold(text: str) -> str:
    """Return a text in lower case, without accents."""
    if text.isascii():
        return text.lower()
    return "".join(letter for letter in normalize("NFKD", text.lower()) if not combining(letter))


def _keys(text: str) -> Iterable[tuple[str, str]]:
    """Return the words of a text, each with what is compared of it; where letters are words or syllables, also pairs of them."""
    listed = words(text)
    out = [(word, word[:LETTERS]) for word in listed]
    if not text.isascii():
        out += [(one + other, one + other) for one, other in pairwise(listed) if len(one) == len(other) == 1]
    return out
