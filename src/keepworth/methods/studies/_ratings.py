"""What people thought of things: a folder with a file of ratings and a file of items. Nothing of the kind is shipped.

Either file is CSV with a header, or JSON lines (`.jsonl`); both may be packed (`.gz`). MovieLens' own `ratings.csv` and
`movies.csv` are read as they are.

| file | column | also called | what it is |
| --- | --- | --- | --- |
| ratings | user | userId, user_id | who |
| | item | itemId, item_id, movieId | what, as in the file of items |
| | rating | | a number; the higher the better |
| | time | timestamp | optional: a number, the larger the later; else the order of the file counts |
| | text | review | optional: what the user wrote |
| items (or movies) | item | itemId, item_id, movieId | its id |
| | title | name | what it is called |
| | categories | genres | `Comedy|Drama`, or a list in JSON lines |

Of two ratings of one item by one user the later counts.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keepworth.tasks.data_files import WrongFormat, located, text_of

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "user": ("user", "userId", "user_id"),
    "item": ("item", "itemId", "item_id", "movieId"),
    "rating": ("rating",),
    "time": ("time", "timestamp"),
    "text": ("text", "review"),
    "title": ("title", "name"),
    "categories": ("categories", "genres"),
}
_ENDS = (".csv", ".jsonl", ".csv.gz", ".jsonl.gz")
RATINGS = tuple(f"ratings{end}" for end in _ENDS)
ITEMS = tuple(f"{name}{end}" for name in ("items", "movies") for end in _ENDS)
NO_CATEGORY = "(no genres listed)"


@dataclass(frozen=True, slots=True)
class RatedItem:
    """categories: in the order of the file, each once."""

    id: str
    title: str
    categories: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rating:
    user: str
    item: str
    rating: float
    text: str = ""


@dataclass(frozen=True, slots=True)
class Ratings:
    """items: by id. by_user: of each user in the order of time."""

    items: Mapping[str, RatedItem]
    by_user: Mapping[str, tuple[Rating, ...]]


def ratings(data: str | os.PathLike[str] | None = None) -> Ratings:
    """The ratings of a folder; None reads the environment variable KEEPWORTH_DATA.

    Raises MissingData, which says what was looked for and where; WrongFormat, which names the file, the line and the column."""
    where = {
        "folder": "ratings",
        "source": "whoever may give it to you, or write one (keepworth.methods.studies._ratings)",
    }
    of_ratings = located("A set of ratings", RATINGS, data, several=True, **where)
    of_items = located("The items of a set of ratings", ITEMS, data, several=True, **where)
    items = _items(of_items)
    rows: dict[tuple[str, str], tuple[float, int, Rating]] = {}
    for number, (at, row) in enumerate(_rows(of_ratings)):
        user, item = _text(row, "user", at), _text(row, "item", at)
        if item not in items:
            raise WrongFormat(
                f"{at}: the item {item!r:.60} is not in {of_items.name}.", "Add it there, or leave it out."
            )
        time = _number(row, "time", at) if _cell(row, "time") not in (None, "") else float(number)
        found = time, number, Rating(user, item, _number(row, "rating", at), str(_cell(row, "text") or ""))
        if (user, item) not in rows or found[:2] > rows[user, item][:2]:
            rows[user, item] = found
    by_user: dict[str, list[Rating]] = {}
    for _, _, rating in sorted(rows.values(), key=lambda row: row[:2]):
        by_user.setdefault(rating.user, []).append(rating)
    return Ratings(items, {user: tuple(own) for user, own in sorted(by_user.items())})


def _items(path: Path) -> dict[str, RatedItem]:
    items: dict[str, RatedItem] = {}
    for at, row in _rows(path):
        id = _text(row, "item", at)
        if id in items:
            raise WrongFormat(f"{at}: the item {id!r:.60} stands there twice.", "Give each item one line.")
        value = _cell(row, "categories")
        parts: Sequence[Any] = value if isinstance(value, list) else str(value or "").split("|")
        named = [str(part).strip() for part in parts if str(part).strip() not in ("", NO_CATEGORY)]
        items[id] = RatedItem(id, _text(row, "title", at), tuple(dict.fromkeys(named)))
    return items


def _rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each row with where it stands, for messages."""
    text, met = text_of(path), False
    if ".jsonl" in path.name:
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                met, at = True, f"{path}, line {number}"
                yield at, _object(line, at)
    else:
        reader = csv.DictReader(io.StringIO(text, newline=""))
        for row in reader:
            met, at = True, f"{path}, line {reader.line_num}"
            if None in row or None in row.values():
                raise WrongFormat(f"{at}: not as many cells as the header has.", "Quote cells that hold a comma.")
            yield at, row
    if not met:
        raise WrongFormat(f"{path} holds no row.", "Write a header and at least one row, or JSON lines in a .jsonl.")


def _object(line: str, at: str) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise WrongFormat(f"{at}: this is no JSON: {error}.", "Write one JSON object a line.") from None
    if not isinstance(row, Mapping):
        raise WrongFormat(f"{at}: this is no object.", "Write {...} a line.")
    return row


def _cell(row: Mapping[str, Any], column: str) -> Any:
    return next((row[name] for name in COLUMNS[column] if name in row), None)


def _text(row: Mapping[str, Any], column: str, at: str) -> str:
    value = _cell(row, column)
    if value is None or not str(value).strip():
        names = ", ".join(map(str, row))
        raise WrongFormat(
            f"{at}: there is no {column}.", f"Call the column {' or '.join(COLUMNS[column])}; there are {names}."
        )
    return str(value).strip()


def _number(row: Mapping[str, Any], column: str, at: str) -> float:
    value = _text(row, column, at)
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise WrongFormat(f"{at}: {column} is {value!r:.60}.", "Write a number.")
    return number
