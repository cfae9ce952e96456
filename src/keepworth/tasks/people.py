"""People and what is known of them: names, and attributes with their wordings and values, split so that some are held out.

No name of one split occurs in another, and some values occur in one held-out split only. Both are decided by the sha256
of the word (`keepworth.tasks.splits.side`), so that they never depend on a seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from keepworth.episodes.errors import require_known
from keepworth.tasks.splits import SPLITS, side


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NAMES = _words(
    "Adam Aisha Alba Alma Amir Andrea Anton Astrid Beatriz Bella Bruno Carla Carlos Cecilia Clara Daniel "
    "Daria David Diego Dora Edith Elena Elias Emil Emma Erik Esther Eva Felix Fatima Fiona Frank Frida "
    "Georg Gina Grace Greta Hana Hannah Hassan Helen Henry Hugo Ibrahim Ida Ines Irene Isaac Ivan Jack "
    "Jan Jana Javier Joel Jonas Julia Kai Karin Kenji Klara Lars Laura Leila Leo Linda Lucia Luis Lukas "
    "Magda Marco Maria Martin Mary Max Maya Mei Mila Mina Mohamed Nadia Nina Noah Nora Olga Oliver Omar "
    "Oscar Otto Paula Pedro Peter Petra Priya Rachel Rafael Ravi Rita Robert Rosa Ruth Samir Sara Sofia "
    "Stefan Susan Tara Theo Thomas Tobias Uma Vera Victor Walter Wanda Yara Yusuf Zara Zoe"
)


@dataclass(frozen=True, slots=True)
class Attribute:
    """One thing a person has at most one of. `{n}` is the person, `{v}` the value.

    states: wordings of "it holds"; changes: "it holds from now on"; ends: "it no longer holds"."""

    key: str
    states: tuple[str, ...]
    changes: tuple[str, ...]
    ends: tuple[str, ...]
    values: tuple[str, ...]


ATTRIBUTES = (
    Attribute(
        "city",
        ("{n} lives in {v}.", "{n}'s home is in {v}.", "{n} has a flat in {v}."),
        ("{n} moved to {v}.", "{n} now lives in {v}."),
        ("{n} no longer lives in {v}.", "{n} left {v}."),
        _words(
            "Oslo Rome Paris Boston Lima Tokyo Berlin Madrid Vienna Cairo Dublin Athens Seattle Prague "
            "Lisbon Toronto Chicago Warsaw"
        ),
    ),
    Attribute(
        "job",
        ("{n} works as a {v}.", "{n} is a {v}.", "{n} earns a living as a {v}."),
        ("{n} became a {v}.", "{n} now works as a {v}."),
        ("{n} no longer works as a {v}.", "{n} gave up the job as a {v}."),
        _words(
            "nurse teacher pilot baker lawyer painter plumber farmer dentist waiter tailor banker gardener "
            "driver writer chef"
        ),
    ),
    Attribute(
        "pet",
        ("{n} has a pet {v}.", "{n} keeps a {v}.", "{n}'s pet is a {v}."),
        ("{n} now has a pet {v} instead.", "{n}'s pet is now a {v}."),
        ("{n} no longer has a {v}.", "{n} gave the {v} away."),
        _words("dog cat parrot rabbit hamster turtle snake goldfish pony lizard canary ferret"),
    ),
    Attribute(
        "drink",
        ("{n}'s favourite drink is {v}.", "{n} likes {v} best.", "{n} always orders {v}."),
        ("{n} switched to drinking {v}.", "{n}'s favourite drink is now {v}."),
        ("{n} no longer drinks {v}.", "{n} gave up {v}."),
        _words("tea coffee cocoa cider lemonade milk cola espresso water juice wine beer"),
    ),
    Attribute(
        "language",
        ("{n} is learning {v}.", "{n} studies {v}.", "{n} takes {v} lessons."),
        ("{n} switched to learning {v}.", "{n} is now learning {v}."),
        ("{n} stopped learning {v}.", "{n} no longer takes {v} lessons."),
        _words("Spanish French German Greek Arabic Danish Polish Hindi Korean Turkish Dutch Swedish Czech Welsh"),
    ),
    Attribute(
        "instrument",
        ("{n} plays the {v}.", "{n}'s instrument is the {v}.", "{n} practises the {v}."),
        ("{n} switched to the {v}.", "{n} now plays the {v}."),
        ("{n} no longer plays the {v}.", "{n} stopped playing the {v}."),
        _words("piano violin cello flute drums guitar harp trumpet banjo clarinet organ oboe"),
    ),
    Attribute(
        "car",
        ("{n} drives a {v}.", "{n}'s car is a {v}.", "{n} owns a {v}."),
        ("{n} now drives a {v}.", "{n} changed the car for a {v}."),
        ("{n} no longer drives a {v}.", "{n} sold the {v}."),
        _words("Volvo Toyota Fiat Ford Honda Skoda Tesla Jeep Mazda Renault Seat Kia"),
    ),
    Attribute(
        "sport",
        ("{n} trains in {v}.", "{n}'s sport is {v}.", "{n} does {v} every week."),
        ("{n} took up {v} instead.", "{n}'s sport is now {v}."),
        ("{n} no longer does {v}.", "{n} stopped training in {v}."),
        _words("boxing rowing judo tennis rugby fencing cycling hockey golf karate swimming climbing skating archery"),
    ),
    Attribute(
        "class day",
        ("{n}'s cooking class is on {v}.", "{n} goes to a cooking class on {v}.", "{n} has a cooking class every {v}."),
        ("{n}'s cooking class moved to {v}.", "{n}'s cooking class is now on {v}."),
        ("{n} no longer goes to the {v} cooking class.", "{n} dropped the cooking class on {v}."),
        _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday"),
    ),
)


@cache
def names_of(split: str) -> tuple[str, ...]:
    """The people of one split. No two splits share one."""
    return tuple(name for name in NAMES if side(name) == checked_split(split))


@cache
def values_of(attribute: Attribute, split: str) -> tuple[str, ...]:
    """The values an attribute takes in a split: training values everywhere, the others in their own split only."""
    allowed = {"train", checked_split(split)}
    return tuple(value for value in attribute.values if side(f"{attribute.key}/{value}") in allowed)


def checked_split(split: str) -> str:
    """`split` itself. Raises UnknownName where there is none of that name."""
    return require_known("split", split, SPLITS)
