"""Admission: what an item with advice must be, and which drafts enter a memory in what state.

A problem is a sentence that names the part; "" where there is none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from keepworth.memory.choose.pool import Advice
from keepworth.memory.errors import InvalidAdvice
from keepworth.memory.item import Item, ItemKind, learned, on_word_of, source_problem, text_problem

RESERVED = frozenset(("do", "avoid", "good", "trigger", "payload", "key", "born", "of", "extra"))
"""Names in an item's metadata that only a memory may write."""
LONGEST = 200_000
"""Largest number of characters of an action, a condition or a source, and of `extra` as JSON."""


def advice_problem(draft: object) -> str:
    """Return what is wrong with a draft, or None."""
    if not isinstance(draft, Advice):
        return f"{draft!r:.60} is no draft"
    for name, text in (("text", draft.text), ("key", draft.key)):
        problem = text_problem(text)
        if problem is not None:
            return f"its {name}{problem.removeprefix('text')}"
    if not isinstance(draft.kind, ItemKind):
        return f"its kind {draft.kind!r:.40} is none of {', '.join(kind.value for kind in ItemKind)}"
    if not (isinstance(draft.trust, (int, float)) and 0.0 <= draft.trust <= 1.0):
        return f"its trust {draft.trust!r:.40} does not lie in [0, 1]"
    data = {name: getattr(draft, name) for name in ("do", "avoid", "good", "trigger", "payload")}
    return source_problem(draft.source) or _problem(data) or _extra_problem(draft.extra)


def advises(item: Item) -> bool:
    """Return whether a stored item is advice that a policy can follow."""
    data = item.metadata
    return "do" in data and all(isinstance(data.get(name, 0), int) for name in ("born", "of")) and not _problem(data)


def plain_names(item: Item) -> dict[str, Any]:
    """Return an item's metadata. The names that slots of a policy read are left out unless a policy wrote them."""
    if learned(item.provenance.source) or not item.metadata:
        return dict(item.metadata)
    hidden = READ if advises(item) else READ | RESERVED
    return {name: value for name, value in item.metadata.items() if name not in hidden}


READ = frozenset(
    ("q", "n", "goal", "observation", "visits", "links", "tags", "content", "keywords", "context", "earned")
)
"""Names that slots of policies read in the metadata of items that they wrote."""


def _problem(data: Mapping[str, Any]) -> str:
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
    return "trigger and payload belong together: give both or neither" if bool(trigger) != bool(payload) else ""


def _extra_problem(extra: object) -> str:
    if extra is None:
        return ""
    if not isinstance(extra, Mapping):
        return f"extra is {extra!r:.40}, not a mapping"
    if names := RESERVED & set(extra):
        return f"extra sets {min(names)!r}, which is memory's own: {', '.join(sorted(RESERVED))} cannot be set there"
    try:
        written = json.dumps(dict(extra), allow_nan=False, ensure_ascii=False)
        written.encode()
    except (TypeError, ValueError, RecursionError) as problem:
        return f"extra cannot be written as JSON ({problem})"
    return f"extra is longer than {LONGEST:,} characters" if len(written) > LONGEST else ""


def checked_proposal(proposed: Advice, episode: str, person: str) -> Advice:
    """Check advice, and return it with its source. Raises InvalidAdvice.

    Args:
        proposed: The advice.
        episode: The id of the episode in which it was seen; "" if it was offered from outside.
        person: The user in whose episode that was; "" for nobody.
    """
    if episode and isinstance(proposed, Advice):
        proposed = replace(proposed, source=on_word_of(person))
    problem = advice_problem(proposed)
    if problem:
        raise InvalidAdvice(
            f"the advice cannot be kept: {problem}.", "Give an Advice(key, text, do=(action,), source=name)."
        )
    if episode and (reserved := READ & set(proposed.extra or ())):
        raise InvalidAdvice(f"the advice sets {min(reserved)!r}, which policies keep.", "Give it another name.")
    if not episode and learned(proposed.source):
        raise InvalidAdvice(
            f"the advice says that its source is {proposed.source!r}, which is what memory learned itself.",
            "Name where it comes from, such as source='import:wiki'.",
        )
    return proposed
