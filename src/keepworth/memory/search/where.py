"""Filters: one grammar over the metadata of items, read and checked once, before anything is searched.

    {"topic": "food"}                                the value is there and equal, whole
    {"topic": {"$in": ["food", "travel"]}}           operators of one name; several have to hold together
    {"year": {"$gte": 2020, "$lt": 2025}}
    {"$or": [{"team": "red"}, {"$not": {"tags": {"$contains": "old"}}}], "user.city": "Oslo"}

Several names have to hold together. A name with dots is first read as it stands; an item that has no such name is read on in
the dictionary before the first dot. Values are what JSON knows. Truth values are no numbers: `True` is not 1, while 1 is 1.0.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

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
    """Something hashable that two values share just where they are equal; numbers by their value, truth values apart."""
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
    """Where a value lies. inside: the dictionaries it is in, from the outside; name: as people write it, dots and all."""

    name: str
    inside: tuple[Any, ...] = ()

    def of(self, metadata: Mapping[str, Any]) -> Any:
        """MISSING where it is not there."""
        here: Any = metadata
        if not self.inside and self.name in here:
            return here[self.name]
        for part in self.inside:
            if not isinstance(here, Mapping) or part not in here:
                return MISSING
            here = here[part]
        name = self.name
        while isinstance(here, Mapping):
            if name in here:
                return here[name]
            head, dot, name = name.partition(".")
            if not dot or head not in here:
                return MISSING
            here = here[head]
        return MISSING


@dataclass(frozen=True, slots=True)
class Condition:
    """An operator on one value. operand: with `$in` and `$nin` the set of `value_key`s, with `$eq` and `$ne` one in a set."""

    field: Field
    operator: str
    operand: Any
    holds: Test


@dataclass(frozen=True, slots=True)
class Joined:
    """parts: all of them ("$and"), one of them at least ("$or"), or the only one not ("$not")."""

    joint: str
    parts: tuple[Condition | Joined, ...]


Tree = Condition | Joined


def holds(tree: Tree, metadata: Mapping[str, Any]) -> bool:
    """Whether `metadata` meets what was parsed."""
    if isinstance(tree, Condition):
        return tree.holds(tree.field.of(metadata))
    if tree.joint == "$not":
        return not holds(tree.parts[0], metadata)
    each = (holds(part, metadata) for part in tree.parts)
    return all(each) if tree.joint == "$and" else any(each)


def with_facts(metadata: Mapping[str, Any], kind: str, when: str) -> dict[Any, Any]:
    """Metadata, and beside them what `narrowed` asks for."""
    return {**metadata, ITEM: {"kind": kind, "when": when}}


@dataclass(frozen=True, slots=True, eq=False)
class Filter:
    """A filter that was read and checked. tree: what it asks of metadata; function: what else an item has to meet. but: ids of
    items that are let through without a look, as somebody else looks at them."""

    tree: Tree | None = None
    function: Callable[[Item], bool] | None = None
    but: frozenset[str] = frozenset()

    def __call__(self, item: Item) -> bool:
        return self.meets(item.metadata) and (self.function is None or self.function(item))

    def meets(self, metadata: Mapping[str, Any]) -> bool:
        """Whether metadata, or a dictionary like them, meet the declared part."""
        return self.tree is None or holds(self.tree, metadata)


def parsed(
    where: Where | Filter, *, place: str = "where", inside: Sequence[str] = (), partial: bool = False
) -> Filter | None:
    """What `where` asks, None where it asks nothing. Raises InvalidFilter, which names the place.

    place: what the filter is called in messages. inside: names of the dictionaries that all names lie in. partial: a plain
    dictionary in the place of a value asks for its parts, where it is else compared whole."""
    if where is None or isinstance(where, Filter):
        return where
    if isinstance(where, Mapping):
        return Filter(_clause(where, place, tuple(inside), partial, 0)) if where else None
    if callable(where):
        return Filter(function=where)
    raise InvalidFilter(
        f"{place} must be a dictionary or a function of the item, got {where!r:.60}.",
        "Give names and values, such as {'team': 'red'}.",
    )


def from_text(text: str, *, place: str = "where") -> dict[str, Any]:
    """A filter that is written as JSON. Raises InvalidFilter."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidFilter(
            f"{place} is no JSON: {text[:60]!r} ({error!s:.80}).", """Write a dictionary, such as {"team": "red"}."""
        ) from error
    if not isinstance(found, dict):
        raise InvalidFilter(
            f"{place} must be a dictionary, got {text[:60]!r}.", """Write one such as {"team": "red"}."""
        )
    return found


def from_texts(texts: Sequence[str], *, place: str = "where") -> dict[str, Any] | None:
    """Filters that have to hold together, each as JSON or as NAME=VALUE; None where there are none. VALUE is read as JSON, and is
    text where it is none. Raises InvalidFilter."""
    found = []
    for text in texts:
        if text.lstrip().startswith("{"):
            found.append(from_text(text, place=place))
            continue
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidFilter(
                f"{place} takes JSON or NAME=VALUE, got {text[:60]!r}.",
                """Write one such as '{"year": {"$gte": 2020}}' or team=red.""",
            )
        try:
            found.append({name: {"$eq": json.loads(value)}})
        except (ValueError, RecursionError):
            found.append({name: {"$eq": value}})
    for each in found:
        parsed(each, place=place)
    return {"$and": found} if len(found) > 1 else found[0] if found else None


def narrowed(where: Filter | None, kinds: Sequence[str], since: str, until: str) -> Filter | None:
    """`where`, and of these kinds (all where there are none), and not before `since` nor at `until` or after. Only what is made
    by `with_facts` can be held against it."""
    parts: list[Tree] = [] if where is None or where.tree is None else [where.tree]
    if kinds:
        parts.append(_condition(Field("kind", (ITEM,)), "$in", list(kinds), "kinds"))
    when = Field("when", (ITEM,))
    parts += [_condition(when, how, bound, "time") for how, bound in (("$gte", since), ("$lt", until)) if bound]
    if len(parts) == (where is not None and where.tree is not None):
        return where
    tree = parts[0] if len(parts) == 1 else Joined("$and", tuple(parts))
    return Filter(tree) if where is None else replace(where, tree=tree)


def _clause(where: Mapping[Any, Any], place: str, inside: tuple[str, ...], partial: bool, depth: int) -> Tree:
    """A dictionary of names and joints, which has to hold together. It is not empty."""
    if depth > DEEPEST:
        raise InvalidFilter(f"{place:.60}...: more than {DEEPEST} filters lie in each other.", "Ask for less at once.")
    parts: list[Tree] = []
    for name, value in where.items():
        at = f"{place}[{name!r:.60}]"
        if not isinstance(name, str):
            raise InvalidFilter(f"{place}: names of metadata are text, got {name!r:.40}.", "Give the name as text.")
        if name in ("$and", "$or"):
            if not isinstance(value, (list, tuple)) or not value:
                raise InvalidFilter(
                    f"{at} takes a list of filters, got {value!r:.60}.", "Give at least one, in a list."
                )
            each = (_inner(one, f"{at}[{number}]", inside, partial, depth + 1) for number, one in enumerate(value))
            parts.append(Joined(name, tuple(each)))
        elif name == "$not":
            parts.append(Joined(name, (_inner(value, at, inside, partial, depth + 1),)))
        elif name in OPERATORS:
            raise InvalidFilter(f"{at}: {name} stands under no name.", f"Write {{'NAME': {{{name!r}: ...}}}}.")
        elif name.startswith("$"):
            raise InvalidFilter(
                f"{place}: there is no operator {name!r:.40} between filters.",
                f"Use one of {', '.join(JOINTS)}; a name that begins with $ cannot be asked for.",
            )
        elif name in ("AND", "OR", "NOT") and isinstance(value, (list, tuple, Mapping)):
            raise InvalidFilter(f"{at}: filters are not joined with {name} here.", f"Write ${name.lower()}.")
        else:
            parts += _of_name(name, value, at, inside, partial, depth)
    return parts[0] if len(parts) == 1 else Joined("$and", tuple(parts))


def _inner(where: object, place: str, inside: tuple[str, ...], partial: bool, depth: int) -> Tree:
    if not isinstance(where, Mapping) or not where:
        raise InvalidFilter(
            f"{place} must be a filter, got {where!r:.60}.", "Give a dictionary with at least one name or operator."
        )
    return _clause(where, place, inside, partial, depth)


def _of_name(name: str, value: object, place: str, inside: tuple[str, ...], partial: bool, depth: int) -> list[Tree]:
    """What is asked of one name."""
    field = Field(name, inside)
    if not isinstance(value, Mapping):
        return [_condition(field, "$eq", value, place)]
    marked = [each for each in value if isinstance(each, str) and each.startswith("$")]
    if marked and len(marked) < len(value):
        plain = next(each for each in value if each not in marked)
        raise InvalidFilter(
            f"{place}: {plain!r:.40} stands beside the operator {marked[0]:.40}.",
            "Write either operators or a value; what lies deeper is 'name.name'.",
        )
    if marked:
        found = [_condition(field, operator, value[operator], f"{place}[{operator!r:.40}]") for operator in marked]
        bounds = {isinstance(each.operand, str): each.operator for each in found if each.operator in RANGES}
        if len(bounds) > 1:
            raise InvalidFilter(
                f"{place}: {bounds[False]} is a number and {bounds[True]} is text, and no value lies between them.",
                "Give bounds of one type.",
            )
        return list(found)
    bare = [each for each in value if isinstance(each, str) and f"${each}" in OPERATORS]
    if bare and len(bare) == len(value):
        raise InvalidFilter(
            f"{place}: {bare[0]!r} is no operator.",
            f"Write {'$' + bare[0]!r}; to compare with the dictionary itself, write {{'$eq': {{...}}}}.",
        )
    if partial and value:
        return [_clause(value, place, (*inside, name), True, depth + 1)]
    _check_value(value, place)
    deeper = _operator_in(value)
    if deeper:
        raise InvalidFilter(
            f"{place}: {deeper} lies in a dictionary that is compared whole.",
            f"Write {name + '.NAME'!r:.60} with the operator under it; to compare with the dictionary itself, write "
            "{'$eq': {...}}.",
        )
    return [_condition(field, "$eq", value, place)]


def _operator_in(value: object) -> str:
    """The first operator in a plain value, "" where there is none."""
    if isinstance(value, Mapping):
        marked = next((name for name in value if name in OPERATORS), "")
        return marked or next((found for each in value.values() if (found := _operator_in(each))), "")
    if isinstance(value, list):
        return next((found for each in value if (found := _operator_in(each))), "")
    return ""


def _condition(field: Field, operator: str, operand: object, place: str) -> Condition:
    if operator in ("$eq", "$ne", "$in", "$nin"):
        if operator in ("$eq", "$ne"):
            _check_value(operand, place)
            among = frozenset([value_key(operand)])
        else:
            if not isinstance(operand, (list, tuple)):
                raise InvalidFilter(f"{place} takes a list of values, got {operand!r:.60}.", "Give them in a list.")
            for number, each in enumerate(operand):
                _check_value(each, f"{place}[{number}]")
            among = frozenset(map(value_key, operand))
        if operator in ("$eq", "$in"):
            return Condition(field, operator, among, lambda value: value_key(value) in among)
        return Condition(field, operator, among, lambda value: value_key(value) not in among)
    if operator in RANGES:
        _check_value(operand, place)
        if isinstance(operand, bool) or not isinstance(operand, (int, float, str)):
            raise InvalidFilter(
                f"{place}: {operand!r:.60} has no order.",
                "Give a number, or text (a time as ISO 8601, such as '2026-01-31').",
            )
        return Condition(field, operator, operand, _range(operator, operand))
    if operator == "$exists":
        if not isinstance(operand, bool):
            raise InvalidFilter(f"{place} takes True or False, got {operand!r:.60}.", "Say which.")
        return Condition(field, operator, operand, lambda value: (value is not MISSING) is operand)
    if operator in ("$contains", "$icontains"):
        return Condition(field, operator, operand, _containing(operator, operand, place))
    fix = {
        "$not": f"Write {{'$not': {{{field.name!r:.60}: ...}}}}.",
        "$not_contains": f"Write {{'$not': {{{field.name!r:.60}: {{'$contains': ...}}}}}}.",
    }
    raise InvalidFilter(
        f"{place}: there is no operator {operator!r:.40} under a name.",
        fix.get(operator, f"Use one of {', '.join(OPERATORS)}."),
    )


def _range(operator: str, bound: Any) -> Test:
    """Numbers are compared with numbers and text with text, by code points."""
    kinds = (str,) if isinstance(bound, str) else (int, float)
    if operator == "$gt":
        return lambda value: type(value) in kinds and value > bound
    if operator == "$gte":
        return lambda value: type(value) in kinds and value >= bound
    if operator == "$lt":
        return lambda value: type(value) in kinds and value < bound
    return lambda value: type(value) in kinds and value <= bound


def _containing(operator: str, part: object, place: str) -> Test:
    """Text holds a part of it, a list holds an element."""
    _check_value(part, place)
    if isinstance(part, (Mapping, list)):
        raise InvalidFilter(
            f"{place} takes one value, got {part!r:.60}.", "Ask for each by itself, and join them with $and or $or."
        )
    if operator == "$contains":
        key = value_key(part)

        def contains(value: object) -> bool:
            if isinstance(value, str):
                return isinstance(part, str) and part in value
            return isinstance(value, list) and any(value_key(each) == key for each in value)

        return contains
    if not isinstance(part, str):
        raise InvalidFilter(f"{place} takes text, got {part!r:.60}.", "Write $contains for other values.")
    folded = part.casefold()

    def contains_text(value: object) -> bool:
        if isinstance(value, str):
            return folded in value.casefold()
        return isinstance(value, list) and any(isinstance(each, str) and each.casefold() == folded for each in value)

    return contains_text


def _check_value(value: object, place: str, depth: int = 0) -> None:
    """Raise InvalidFilter for what metadata never hold."""
    if value is None or isinstance(value, (bool, int, str)):
        return
    if depth > DEEPEST:
        raise InvalidFilter(
            f"{place:.60}...: lists and dictionaries lie more than {DEEPEST} deep in each other.", "Ask for less."
        )
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidFilter(f"{place}: metadata are never {value}.", "Give a finite number.")
    elif isinstance(value, list):
        for number, each in enumerate(value):
            _check_value(each, f"{place}[{number}]", depth + 1)
    elif isinstance(value, Mapping):
        for name, each in value.items():
            if not isinstance(name, str):
                raise InvalidFilter(f"{place}: names in metadata are text, got {name!r:.40}.", "Give the name as text.")
            _check_value(each, f"{place}[{name!r:.60}]", depth + 1)
    else:
        several = isinstance(value, (set, frozenset, tuple))
        fix = "Write {'$in': [...]} for any of several values, and a list for a list." if several else _PLAIN
        raise InvalidFilter(f"{place}: metadata are never equal to {value!r:.60}.", fix)


_PLAIN = "Give text, a number, a truth value, None, a list or a dictionary; a time as text (`.isoformat()`)."
