"""Actions that items which an episode itself wrote name, and how those items stand among one another.

What an agent saw earlier in the same episode may say what to do now: the sign at the entrance, the last card, the note about the
key in its hand. Which of them does is learned from rewards, whatever the words are (`default`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from keepworth.memory.item import Item

ANY, FIRST, LATEST, NEAREST, NONE = range(5)
"""Roles of an action: an item of the episode names it; the first that names an action does, the latest, the one most like the
question; none does."""
ROLES = {
    ANY: "a note",
    FIRST: "the first note",
    LATEST: "the latest note",
    NEAREST: "the note most like this",
    NONE: "no note",
}
"""Of whom it is said that it names an action, to be read."""
OLDEST, NEWEST = 4, 12
"""How many items of an episode are looked at: the first and the latest."""


def roles_of(items: Sequence[Item], actions: Sequence[str], similarities: Sequence[float]) -> dict[str, list[int]]:
    """Return the roles, in order, of each action that one of the items names. Items with advice name what they advise;
    of others the text is searched.

    Args:
        items: What the episode wrote, oldest first.
        actions: The possible actions.
        similarities: Those of the items to the question; () if unknown.
    """
    naming = [(index, named) for index, item in enumerate(items) if (named := _named_by(item, actions))]
    if not naming:
        return {}
    roles = {action: [ANY] for _, named in naming for action in named}
    standing = {FIRST: naming[0], LATEST: naming[-1]}
    if similarities:
        standing[NEAREST] = max(naming, key=lambda pair: similarities[pair[0]])
    for role, (_, named) in standing.items():
        for action in named:
            roles[action].append(role)
    return roles


def _named_by(item: Item, actions: Sequence[str]) -> list[str]:
    if "do" in item.metadata:
        return [action for action in actions if action in item.metadata["do"]]
    return [action for action in actions if re.search(rf"(?<!\w){re.escape(action)}(?!\w)", item.text, re.IGNORECASE)]
