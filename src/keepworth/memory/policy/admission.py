"""Admission: what an item with advice must be, and which drafts enter a memory in what state.

A draft is checked before a gate sees it, and every item of a file before a memory is opened on it, so that what was accepted can
always be read again. A problem is a sentence that names the part; "" where there is none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from keepworth.memory.item import Item, ItemKind, Status, source_problem, text_problem
from keepworth.memory.policy.pool import Advice, Pool

RESERVED = frozenset(("do", "avoid", "good", "trigger", "payload", "key", "born", "of", "extra"))
"""Names of an item's metadata that are memory's own."""
LONGEST = 200_000
"""Characters of an action, a condition, a source; and of all that `extra` holds, as JSON."""
DEEPEST = 8


def advice_problem(draft: object) -> str:
    if not isinstance(draft, Advice):
        return f"{draft!r:.60} is no draft"
    for name, text in (("text", draft.text), ("key", draft.key)):
        problem = text_problem(text)
        if problem is not None:
            return f"its {name}{problem.removeprefix('text')}"
    if not isinstance(draft.kind, ItemKind):
        return f"its kind {draft.kind!r:.40} is none of {', '.join(kind.value for kind in ItemKind)}"
    if not _is_share(draft.trust):
        return f"its trust {draft.trust!r:.40} does not lie in [0, 1]"
    if source_problem(draft.source):
        return source_problem(draft.source)
    data = {
        "do": draft.do,
        "avoid": draft.avoid,
        "good": draft.good,
        "trigger": draft.trigger,
        "payload": draft.payload,
    }
    return _advice_problem(data) or (_extra_problem(draft.extra) if draft.extra is not None else "")


def is_ours(item: Item) -> bool:
    """Whether a policy wrote it, so that a problem with it is damage, and not somebody's own metadata."""
    return "do" in item.metadata and "born" in item.metadata and "of" in item.metadata


def item_problem(item: Item) -> str:
    """Of an item as it is on file: lists in place of tuples, links as ids."""
    data = item.metadata
    for name in ("born", "of"):
        if not _is_count(data.get(name, 0)):
            return f"metadata {name!r} is {data.get(name)!r:.40}, not a number of an episode"
    problem = text_problem(data.get("key", item.key or item.text))
    if problem is not None:
        return f"its key{problem.removeprefix('text')}"
    slots = {name: value for name, value in data.items() if name not in RESERVED}
    if "earned" in slots and "good" not in data:
        return "it says what it earned without good"
    return _advice_problem(data) or _slots_problem(slots)


def plain_names(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Somebody's own metadata, without names that slots of a policy would read."""
    return {name: value for name, value in metadata.items() if name not in RESERVED and name not in _READ}


def _advice_problem(data: Mapping[str, Any]) -> str:
    actions: list[object] = []
    for name in ("do", "avoid"):
        listed = data.get(name, ())
        if not isinstance(listed, (tuple, list)):
            return f"{name!r} is {listed!r:.40}, not a list of actions"
        actions += listed
    if not actions:
        return "it advises nothing: give actions to do or to avoid"
    trigger, payload = data.get("trigger", ""), data.get("payload", "")
    for what, text in [("an action", action) for action in actions] + [("trigger", trigger), ("payload", payload)]:
        if not isinstance(text, str) or len(text) > LONGEST or (text and text_problem(text) is not None):
            return f"{what} is {text!r:.40}, not a text of at most {LONGEST:,} characters without control characters"
    if not all(str(action).strip() for action in actions):
        return "an action is empty"
    if bool(trigger) != bool(payload):
        return "trigger and payload belong together: give both or neither"
    if not isinstance(data.get("good", True), (bool, np.bool_)):
        return f"'good' is {data.get('good')!r:.40}, not true or false"
    return ""


def _extra_problem(extra: object) -> str:
    if not isinstance(extra, Mapping):
        return f"extra is {extra!r:.40}, not a mapping"
    for name in extra:
        if not isinstance(name, str):
            return f"extra has the name {name!r:.40}, which is no text"
        if name in RESERVED:
            return f"extra sets {name!r}, which is memory's own: {', '.join(sorted(RESERVED))} cannot be set there"
    if not _plain(extra, DEEPEST):
        return (
            "extra holds something that is not text, a finite number, true, false, none, or lists and mappings of them"
        )
    if len(json.dumps(extra)) > LONGEST:
        return f"extra is longer than {LONGEST:,} characters"
    return _slots_problem(extra)


def _slots_problem(extra: Mapping[str, Any]) -> str:
    """What slots of the methods here write and read has a fixed type, whoever wrote it."""
    for name, value in extra.items():
        if name in _TYPES and not _TYPES[name](value):
            return f"{name!r} is {value!r:.40}, which the methods that read it cannot use"
    lacks = [name for name in ("goal", "observation", "n", "visits") if name not in extra]
    if "q" in extra and lacks:
        return f"it has action values without {', '.join(lacks)}"
    lacks = [name for name in ("content", "keywords", "context") if name not in extra]
    return f"it has tags without {', '.join(lacks)}" if "tags" in extra and lacks else ""


def _plain(value: object, depth: int) -> bool:
    if isinstance(value, str):
        return not any("\ud800" <= character <= "\udfff" for character in value)
    if value is None or isinstance(value, bool):
        return True
    if isinstance(value, (int, float)):
        return _is_number(value)
    if depth == 0:
        return False
    if isinstance(value, (list, tuple)):
        return all(_plain(each, depth - 1) for each in value)
    if isinstance(value, Mapping):
        return all(
            isinstance(name, str) and _plain(name, 0) and _plain(each, depth - 1) for name, each in value.items()
        )
    return False


def _all(value: object, kind: type) -> bool:
    return isinstance(value, (tuple, list)) and all(isinstance(each, kind) for each in value)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 2**63


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def _is_share(value: object) -> bool:
    return _is_number(value) and 0.0 <= value <= 1.0  # type: ignore[operator]


def _is_table(value: object) -> bool:
    return (
        isinstance(value, Mapping)
        and bool(value)
        and all(isinstance(name, str) and _is_number(each) for name, each in value.items())
    )


_READ = frozenset(
    ("q", "n", "goal", "observation", "visits", "links", "tags", "content", "keywords", "context", "earned")
)
"""Names that slots of the policies here read."""
_TYPES: dict[str, Callable[[object], bool]] = {
    **dict.fromkeys(("keywords", "tags", "tools"), lambda value: _all(value, str)),
    **dict.fromkeys(("content", "context", "goal", "observation"), lambda value: isinstance(value, str)),
    **dict.fromkeys(("q", "n"), _is_table),
    "links": lambda value: _all(value, str) or _all(value, int),
    "visits": _is_count,
    **dict.fromkeys(("confidence", "earned"), _is_number),
}


def admit_all(draft: Advice, pool: Pool) -> Status | None:
    """Everything, at once: what most published methods do."""
    return Status.ACTIVE
