"""Filters: one grammar over the metadata of items, read and checked once, before anything is searched.

    {"topic": "food"}                                the value is there and equal, whole
    {"topic": {"$in": ["food", "travel"]}}           operators of one name; several have to hold together
    {"year": {"$gte": 2020, "$lt": 2025}}
    {"$or": [{"team": "red"}, {"$not": {"tags": {"$contains": "old"}}}], "user.city": "Oslo"}

Several names have to hold together. A name with dots is first read as it stands; an item that has no such name is read on in
the dictionary before the first dot, or in the list, whose places count from 0 ("authors.0"). Values are what JSON knows. Truth
values are no numbers: `True` is not 1, while 1 is 1.0.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import ge, gt, le, lt
from typing import TYPE_CHECKING, Any

from keepworth.base.errors import called_as
from keepworth.base.json_values import parse
from keepworth.memory.errors import InvalidFilter

if TYPE_CHECKING:
    from keepworth.memory.item import Item

ITEM = object()
"""The name, which no metadata have, of a dictionary of what else is asked of an item: "kind", and "when" it was."""
Where = Mapping[str, Any] | Callable[["Item"], bool] | None
"""A filter as people write it: a dictionary of the grammar, or a function of the item."""
Test = Callable[[object], bool]

DEEPEST = 32
"""How many lists and dictionaries of a filter may lie in each other."""
RANGES = ("$gt", "$gte", "$lt", "$lte")
OPERATORS = ("$eq", "$ne", *RANGES, "$in", "$nin", "$exists", "$contains", "$icontains")
JOINTS = ("$and", "$or", "$not")


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING: Any = _Missing()
"""What an item has under a name that it does not have."""


def value_key(value: object) -> object:
    """Return a hashable key that two values share only if they are equal. Numbers go by value, and True is not 1."""
    if type(value) is str:
        return value
    if isinstance(value, bool):
        return (bool, value)
    if isinstance(value, Mapping):
        return (dict, frozenset((name, value_key(inner)) for name, inner in value.items()))
    if isinstance(value, (list, tuple)):
        return (list, tuple(map(value_key, value)))
    return value


@dataclass(frozen=True, slots=True)
class Field:
    """The place of a value in metadata. inside: the dictionaries around it, the outermost first; name: as people write it, with
    dots."""

    name: str
    inside: tuple[Any, ...] = ()

    def of(self, metadata: Mapping[str, Any]) -> Any:
        """Return the value in some metadata, or MISSING."""
        here: Any = metadata
        if not self.inside and self.name in here:
            return here[self.name]
        for part in self.inside:
            if not isinstance(here, Mapping) or part not in here:
                return MISSING
            here = here[part]
        name = self.name
        while True:
            if isinstance(here, Mapping) and name in here:
                return here[name]
            head, dot, name = name.partition(".")
            if isinstance(here, Mapping) and dot and head in here:
                here = here[head]
            elif isinstance(here, (list, tuple)) and head.isascii() and head.isdigit() and int(head[:9]) < len(here):
                here = here[int(head[:9])]
                if not dot:
                    return here
            else:
                return MISSING


@dataclass(frozen=True, slots=True)
class Condition:
    """An operator on one value. operand: for `$in` and `$nin` a set of `value_key`s, for `$eq` and `$ne` a set of one."""

    field: Field
    operator: str
    operand: Any
    holds: Test


@dataclass(frozen=True, slots=True)
class Joined:
    """Several conditions: all must hold ("$and"), at least one ("$or"), or the only one must not ("$not")."""

    joint: str
    parts: tuple[Condition | Joined, ...]


Tree = Condition | Joined


def holds(tree: Tree, metadata: Mapping[str, Any]) -> bool:
    """Return whether metadata meet a parsed filter."""
    if isinstance(tree, Condition):
        return tree.holds(tree.field.of(metadata))
    if tree.joint == "$not":
        return not holds(tree.parts[0], metadata)
    results = (holds(part, metadata) for part in tree.parts)
    return all(results) if tree.joint == "$and" else any(results)


def with_facts(metadata: Mapping[str, Any], kind: str, when: str) -> dict[Any, Any]:
    """Return metadata with what `narrowed` filters by.

    Args:
        metadata: That of the item.
        kind: The kind of the item.
        when: Its time, as ISO 8601.
    """
    return {**metadata, ITEM: {"kind": kind, "when": when}}


@dataclass(frozen=True, slots=True, eq=False)
class Filter:
    """A parsed and checked filter. tree: its conditions on metadata; function: a further condition on the item; but: ids of items
    that pass without a check, because the caller checks them."""

    tree: Tree | None = None
    function: Callable[[Item], bool] | None = None
    but: frozenset[str] = frozenset()

    def __call__(self, item: Item) -> bool:
        admitted = self.meets(item.metadata)
        if self.function is None or not admitted:
            return admitted
        with called_as("The function of where"):
            return self.function(item)

    def meets(self, metadata: Mapping[str, Any]) -> bool:
        """Return whether metadata, or a dictionary like them, meet the conditions of `tree`."""
        return self.tree is None or holds(self.tree, metadata)


def parsed(where: Where | Filter, *, place: str = "where") -> Filter | None:
    """Parse a filter; None means no filter. place: its name in messages. Raises InvalidFilter."""
    if where is None or isinstance(where, Filter):
        return where
    if isinstance(where, Mapping):
        return Filter(_clause(where, place, 0)) if where else None
    if callable(where):
        return Filter(function=where)
    raise InvalidFilter(
        f"{place} must be a dictionary or a function of the item, got {where!r:.60}.",
        "Give names and values, such as {'team': 'red'}.",
    )


def from_text(text: str, *, place: str = "where") -> dict[str, Any]:
    """Parse a filter that is written as JSON. Raises InvalidFilter."""
    try:
        value = parse(text)
    except ValueError as error:
        raise InvalidFilter(f"{place} is no JSON: {text[:60]!r} ({error!s:.80}).", _EXAMPLE) from error
    if not isinstance(value, dict):
        raise InvalidFilter(f"{place} must be a dictionary, got {text[:60]!r}.", _EXAMPLE)
    return value


_EXAMPLE = """Write a dictionary, such as {"team": "red"}."""


def from_texts(texts: Sequence[str], *, place: str = "where") -> dict[str, Any] | None:
    """Parse filters that must all hold, each written as JSON or as NAME=VALUE; None if there are none. VALUE is read as JSON, or
    as text if it is none. Raises InvalidFilter."""
    filters = []
    for text in texts:
        if text.lstrip().startswith("{"):
            filters.append(from_text(text, place=place))
            continue
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidFilter(
                f"{place} takes JSON or NAME=VALUE, got {text[:60]!r}.",
                """Write one such as '{"year": {"$gte": 2020}}' or team=red.""",
            )
        try:
            filters.append({name: {"$eq": json.loads(value)}})
        except (ValueError, RecursionError):
            filters.append({name: {"$eq": value}})
    for filter in filters:
        parsed(filter, place=place)
    return {"$and": filters} if len(filters) > 1 else filters[0] if filters else None


def narrowed(where: Filter | None, kinds: Sequence[str] | None, since: str, until: str) -> Filter | None:
    """Return a filter with conditions on the kind and on the time. Its metadata must come from `with_facts`.

    Args:
        where: The filter; None for no condition on metadata.
        kinds: The kinds that it admits; None for any.
        since, until: It admits what is not before the first and before the second, as ISO 8601; "" without bound.
    """
    parts: list[Tree] = [] if where is None or where.tree is None else [where.tree]
    if kinds is not None:
        parts.append(_condition(Field("kind", (ITEM,)), "$in", list(kinds), "kinds"))
    when = Field("when", (ITEM,))
    parts += [_condition(when, how, bound, "time") for how, bound in (("$gte", since), ("$lt", until)) if bound]
    if len(parts) == (where is not None and where.tree is not None):
        return where
    tree = parts[0] if len(parts) == 1 else Joined("$and", tuple(parts))
    return Filter(tree) if where is None else replace(where, tree=tree)


def _clause(where: object, place: str, depth: int) -> Tree:
    """Parse a dictionary of names and joints, all of which must hold."""
    if not isinstance(where, Mapping) or not where:
        raise InvalidFilter(
            f"{place} must be a filter, got {where!r:.60}.", "Give a dictionary with a name or a joint."
        )
    if depth > DEEPEST:
        raise InvalidFilter(f"{place:.60}...: more than {DEEPEST} filters lie in each other.", "Ask for less at once.")
    parts: list[Tree] = []
    for name, value in where.items():
        at = f"{place}[{name!r:.60}]"
        if not isinstance(name, str):
            raise InvalidFilter(f"{place}: names of metadata are text, got {name!r:.40}.", "Give the name as text.")
        if name == "$not":
            parts.append(Joined(name, (_clause(value, at, depth + 1),)))
        elif name in JOINTS:
            if not isinstance(value, (list, tuple)) or not value:
                raise InvalidFilter(
                    f"{at} takes a list of filters, got {value!r:.60}.", "Give at least one, in a list."
                )
            joined = [_clause(one, f"{at}[{number}]", depth + 1) for number, one in enumerate(value)]
            parts.append(Joined(name, tuple(joined)))
        elif name.startswith("$"):
            raise InvalidFilter(
                f"{at}: {name:.40} joins no filters.", f"Use {', '.join(JOINTS)}, or NAME: {{{name!r}: ...}}."
            )
        else:
            parts += _of_name(name, value, at)
    return parts[0] if len(parts) == 1 else Joined("$and", tuple(parts))


def _of_name(name: str, value: object, place: str) -> list[Condition]:
    """Parse the condition on one name: a dictionary of operators, or a value to be equal to."""
    if isinstance(value, Mapping) and not value:
        raise InvalidFilter(
            f"{place} is empty, so that it asks for nothing.",
            f'Give an operator, such as {{"$exists": True}}; to ask for an empty dictionary, {{{name!r}: {{"$eq": {{}}}}}}.',
        )
    field = Field(name)
    if isinstance(value, Mapping) and any(str(part).startswith("$") for part in value):
        return [_condition(field, str(operator), value[operator], f"{place}[{operator!r:.40}]") for operator in value]
    if isinstance(value, Mapping) and value and all(f"${part}" in OPERATORS for part in value):
        raise InvalidFilter(f"{place}: {next(iter(value))!r} is no operator.", f"Write {'$' + next(iter(value))!r}.")
    return [_condition(field, "$eq", value, place)]


def _condition(field: Field, operator: str, operand: object, place: str) -> Condition:
    if operator in ("$eq", "$ne", "$in", "$nin"):
        values = [operand]
        if operator in ("$in", "$nin"):
            if not isinstance(operand, (list, tuple)):
                raise InvalidFilter(f"{place} takes a list of values, got {operand!r:.60}.", "Give them in a list.")
            values = list(operand)
        for one in values:
            _check_value(one, place)
        among = frozenset(map(value_key, values))
        inside = operator in ("$eq", "$in")
        return Condition(field, operator, among, lambda value: (value_key(value) in among) is inside)
    _check_value(operand, place)
    if operator not in _TESTS:
        raise InvalidFilter(f"{place}: there is no operator {operator!r:.40}.", f"Use one of {', '.join(OPERATORS)}.")
    kinds, words, test = _TESTS[operator]
    if type(operand) not in kinds:
        raise InvalidFilter(f"{place} takes {words}, got {operand!r:.60}.", "Give such a value.")
    return Condition(field, operator, operand, partial(test, operand))


def _compared(compare: Callable[[Any, Any], bool], bound: Any, value: Any) -> bool:
    """Compare numbers with numbers, and text with text by code points."""
    return type(value) in ((str,) if isinstance(bound, str) else (int, float)) and compare(value, bound)


def _contains(part: Any, value: object) -> bool:
    """Return whether a text contains a part, or a list an element."""
    if isinstance(value, str):
        return isinstance(part, str) and part in value
    return isinstance(value, list) and any(value_key(one) == value_key(part) for one in value)


def _contains_folded(part: str, value: object) -> bool:
    part = part.casefold()
    if isinstance(value, str):
        return part in value.casefold()
    return isinstance(value, list) and any(isinstance(one, str) and one.casefold() == part for one in value)


_ORDERED = (int, float, str), "a number or text, which have an order"
_TESTS: Mapping[str, tuple[tuple[type, ...], str, Callable[[Any, Any], bool]]] = {
    "$gt": (*_ORDERED, partial(_compared, gt)),
    "$gte": (*_ORDERED, partial(_compared, ge)),
    "$lt": (*_ORDERED, partial(_compared, lt)),
    "$lte": (*_ORDERED, partial(_compared, le)),
    "$exists": ((bool,), "True or False", lambda there, value: (value is not MISSING) is there),
    "$contains": ((str, int, float, bool, type(None)), "one value", _contains),
    "$icontains": ((str,), "text", _contains_folded),
}
"""By operator: the types of its operand, what they are called, and whether it holds, a function of the operand and a value."""


def _check_value(value: object, place: str, depth: int = 0) -> None:
    """Raise InvalidFilter for a value that metadata cannot hold."""
    if depth > DEEPEST:
        raise InvalidFilter(
            f"{place:.60}...: more than {DEEPEST} lists and dictionaries lie in each other.", "Ask for less."
        )
    if isinstance(value, list):
        for one in value:
            _check_value(one, place, depth + 1)
    elif isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        for one in value.values():
            _check_value(one, place, depth + 1)
    elif not (
        value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value))
    ):
        raise InvalidFilter(
            f"{place}: metadata are never equal to {value!r:.60}.",
            "Give text, a finite number, a truth value, None, a list or a dictionary; {'$in': [...]} for any of several.",
        )
