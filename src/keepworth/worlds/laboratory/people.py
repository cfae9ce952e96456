"""People, what links them, and what is said of them, for the worlds of notes and of facts."""

from __future__ import annotations

import random
from collections.abc import Sequence

PEOPLE = ("ana", "bo", "cy", "dee", "eli", "fay", "gus", "hal", "ivy", "jon", "kim", "lee")
LINKS = ("boss", "aunt", "friend", "tutor", "guest", "nurse", "tenant", "rival")
THINGS = {
    "city": ("oslo", "rome", "kyiv", "lima", "bern", "cork", "doha", "nice"),
    "pet": ("cat", "dog", "owl", "pig", "hen", "fox", "bat", "eel"),
    "food": ("rice", "corn", "soup", "kale", "ham", "plum", "beet", "yam"),
    "job": ("cook", "maid", "poet", "vet", "spy", "monk", "chef", "dean"),
    "hue": ("red", "blue", "pink", "gray", "teal", "gold", "lime", "rust"),
    "tool": ("saw", "axe", "rake", "pen", "drill", "vise", "file", "hoe"),
    "game": ("chess", "golf", "polo", "go", "darts", "pool", "rugby", "uno"),
    "tree": ("oak", "elm", "ash", "fir", "pine", "yew", "palm", "fig"),
}
VALUES = tuple(value for values in THINGS.values() for value in values)


def book(composition: Sequence[str], people: Sequence[str], draw: random.Random) -> dict[str, str]:
    """Draws what is written about people: for each skill of the composition a note about each of them.

    Args:
        composition: Links and things.
        people: The people; nobody is linked to themselves.
        draw: What it is drawn with.
    """
    notes = {}
    for name in composition:
        for person in people:
            among = [other for other in people if other != person] if name in LINKS else THINGS[name]
            notes[f"{name} {person}"] = draw.choice(among)
    return notes
