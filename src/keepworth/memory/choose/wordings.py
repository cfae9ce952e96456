"""Wordings: which text of an item a reward was about.

A reward is evidence about the text that was shown, and an item keeps its id when it is reworded. So a search logs which text of
a reworded item it found (`texts_of`), and policies with a record know each text by a name of its own: the first one by the id of
the item, a later one by that and a digest. What one text earned then counts for no other: whoever earns trust with a good note
and writes something else into it begins anew, and so does a note that was wrong and is mended. It counts again where the text
comes back, by an update or by a rollback.

Texts that differ in case, in spaces, in the mark at the end of a word or in a misspelt word are one wording (`alike`). A text is
compared with the first one of each wording, so that many small changes do not add up to another one unseen. Rewordings by earlier
versions, which logged no texts, count as none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

from keepworth.memory.item import EVERYWHERE, Item, indented_alike
from keepworth.memory.store.connection import select
from keepworth.memory.store.rows import ROLLBACK, image, number_of

if TYPE_CHECKING:
    from keepworth.memory.store.store import Store

SINCE = 3
"""The rules of operations since which a reworded item is another wording."""
SPELT = 5
"""A shorter word with another letter is another word, not a misspelt one."""
_FORMER = (
    "SELECT kind, json_extract(payload, '$.rules'), before FROM touches JOIN events USING(seq) "
    f"WHERE n = ? AND changed AND before IS NOT NULL AND kind IN ('UPDATE', '{ROLLBACK}') ORDER BY seq"
)
_END = re.compile(r"(?<=\w)[.,;:!?]+$")


def texts_of(items: Iterable[Item]) -> dict[str, str]:
    """Return a digest of the text of each item that was reworded, by id."""
    return {item.id: _digest(item.text) for item in items if item.revision}


def item_of(name: str) -> str:
    """Return the id of the item that a wording is of."""
    return name.partition("~")[0]


def alike(one: str, other: str) -> bool:
    """Return whether two texts say the same in all but case, spaces, marks at the ends of words and misspelt words."""
    if not indented_alike(one, other):
        return False
    words, others = _words(one), _words(other)
    return len(words) == len(others) and all(map(_spelt_alike, words, others))


class Wordings:
    """The names of the wordings of a memory's items."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._names: dict[str, dict[str, str]] = {}  # by item and digest of a text, of items that were reworded

    def of(self, items: Iterable[Item]) -> list[str]:
        """Return the name of what each item says."""
        return [self._name(item.id, _digest(item.text)) if item.revision else item.id for item in items]

    def then(self, ids: Iterable[str], texts: Mapping[str, str]) -> list[str]:
        """Return the name of what each of these items said when a decision logged `texts`."""
        return [self._name(id, texts[id]) if id in texts else id for id in ids]

    def _name(self, id: str, digest: str) -> str:
        names = self._names.get(id, {})
        if digest not in names:
            names = self._names[id] = self._read(id)
        return names.get(digest, f"{id}~{digest}")

    def _read(self, id: str) -> dict[str, str]:
        """Return the names of all wordings of an item by the digests of the texts that it has had."""
        texts = list[str]()
        with self._store.database.reading() as connection:
            for kind, rules, before in select(connection, _FORMER, (number_of(id),)):
                past = image(before)
                if kind == "UPDATE" and int(rules or 1) < SINCE:
                    texts.clear()
                elif past is not None:
                    texts.append(past.text)
            present = self._store.fetch(EVERYWHERE, [id])[id]
        texts += [present.text] if present is not None else []
        return _named(id, texts)


def _named(id: str, texts: Sequence[str]) -> dict[str, str]:
    """Return the name of each text by its digest: that of the first text which is like it."""
    names = dict[str, str]()  # by the first text of each wording
    for text in texts:
        if not any(alike(first, text) for first in names):
            names[text] = f"{id}~{_digest(text)}" if names else id
    return {_digest(text): next(name for first, name in names.items() if alike(first, text)) for text in texts}


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _words(text: str) -> list[str]:
    return [_END.sub("", word) for word in text.casefold().split()]


def _spelt_alike(one: str, other: str) -> bool:
    """Return whether two words are one, of which one may be misspelt: a letter is missing, another one, or two are swapped. The
    first letter, short words, and what is not letters alone, such as numbers, options and addresses, must be equal."""
    if one == other:
        return True
    if min(len(one), len(other)) < SPELT or one[0] != other[0] or not (one.isalpha() and other.isalpha()):
        return False
    if len(one) == len(other):
        apart = [place for place, (letter, written) in enumerate(zip(one, other, strict=True)) if letter != written]
        first, last = apart[0], apart[-1]
        return first == last or (len(apart) == 2 and one[first : last + 1] == other[first : last + 1][::-1])
    shorter, longer = sorted((one, other), key=len)
    return any(longer[:place] + longer[place + 1 :] == shorter for place in range(len(longer)))
