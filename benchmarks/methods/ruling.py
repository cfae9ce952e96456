"""The one rule by which the evidence of a method becomes a verdict.

A record of evidence (`benchmarks/methods/NAME.json`) holds, in its field `rule`, which of its numbers the claim is about:

    places       for each world, or "over all": `above`, the comparisons in which a gain is claimed; `below`, those in which a
                 smaller value is; `level`, those in which the method is claimed to be as good as another; and `room`, pairs of
                 the best simple rule and the oracle, each the name of an arm or a number
    gain, near   a gain worth having, and what is too little room, as shares of the score's `range`
    claim        what is claimed, where it is not the paper's claim but what every method of a kind claims
    part         which part of the claim the numbers are about, where that is not all of it
    units        what the intervals are over, where nothing was trained or drawn, so that one seed is enough
    uncommitted  the revision whose tree had changes when it was measured, where the record's revision is another
    off          why the mechanism could not act; unreachable: why the claim cannot be tested here; missing: what the record
                 lacks of what this rule needs
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keepworth.evaluation.verdicts import (
    ABSENT,
    BEFORE,
    HELD,
    IN_PART,
    NO_ROOM,
    NOT_HELD,
    STALE,
    UNDECIDED,
    command_gone,
)

ALL = "over all"
"""The place of numbers that are over all worlds."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """What the rule says of a record.

    Attributes:
        verdict: The verdict.
        bound: The largest gain that the numbers still allow, None where none bounds it.
        because: The numbers that it is from, or why there are none.
        where: Of several worlds, where the method helps and where it harms; of a stale record, what its numbers say.
    """

    verdict: str
    bound: float | None
    because: str
    where: str = ""


@dataclass(frozen=True, slots=True)
class _Place:
    """A world: whether all of its comparisons hold, whether all lie above 0 or any below, the upper end that bounds the gain, and
    the words."""

    state: str
    helps: bool
    harms: bool
    bound: float | None
    words: str


def judge(record: Mapping[str, Any], claim: str, root: Path | None = None) -> Ruling:
    """The verdict of a record.

    Args:
        record: The evidence of a method.
        claim: What the method's paper claims; a claim in the record's rule counts before it.
        root: The checkout in which the record's command must be there, None where there is none.
    """
    ruling = _of_numbers(record, record["rule"].get("claim") or claim)
    why = command_gone(record["command"], root) if root else ""
    if not why:
        return ruling
    because = f"{why} By its numbers: {ruling.verdict}. {ruling.because}"
    judged = f"{ruling.verdict} by its numbers" if ruling.verdict not in (ABSENT, BEFORE) else ""
    where = "; ".join(filter(None, (judged, ruling.where)))
    return Ruling(STALE, ruling.bound, because, where)


def _of_numbers(record: Mapping[str, Any], claim: str) -> Ruling:
    rule = record["rule"]
    for field, verdict in (("unreachable", ABSENT), ("missing", BEFORE), ("off", NO_ROOM)):
        if why := rule.get(field):
            return Ruling(verdict, None, why)
    if _clusters(record) < 2 and not rule.get("units"):
        return Ruling(BEFORE, None, "It is of one seed, so that no interval over seeds is there.")
    if record["controls"] in ([], ["none was run"]):
        return Ruling(BEFORE, None, "It has no control that could have refuted it.")
    if lacking := _lacking(record):
        return Ruling(BEFORE, None, f"It lacks {', '.join(lacking)}.")
    near = rule["near"] * rule["range"]
    rooms = {place: _room(record, of.get("room", ())) for place, of in rule["places"].items()}
    closed = {place: room for place, room in rooms.items() if room is not None and room < near}
    places = {place: of for place, of in rule["places"].items() if place not in closed}
    lacks = [f"{f'{place} ' if place else ''}({room:.2f})" for place, room in closed.items()]
    words = f"too near are the best simple rule and the oracle: {', '.join(lacks)}" if lacks else ""
    if not places:
        return Ruling(NO_ROOM, None, _sentence([words]))
    several = [place for place in places if place != ALL]
    plain = {place: _judge_place(place, of, record) for place, of in places.items()}
    wide = {place: _judge_place(place, places[place], record, looks=len(several)) for place in several}
    deciding = [plain[ALL]] if ALL in plain else [*plain.values()]
    bound = max((of.bound for of in deciding if of.bound is not None), default=None)
    held = {of.state for of in deciding} == {HELD}
    helped = [place for place, of in wide.items() if of.helps and len(plain) > 1 and not (held and ALL not in plain)]
    gains = [place for place in helped if wide[place].state == HELD]
    harmed = [place for place, of in wide.items() if of.harms]
    harms = ALL in plain and plain[ALL].harms
    where = _of_places(helped, gains, harmed, harms, "helps on" if ALL in plain else "holds for")
    texts = [*(of.words for of in deciding), words]
    if held:
        part = rule.get("part") or ("" if claim else "No claim is recorded that it could hold.")
        return Ruling(IN_PART if part else HELD, bound, _sentence(texts, part), where)
    if gains and not harms:
        return Ruling(IN_PART, bound, _sentence(texts, rule.get("part", "")), where)
    undecided = any(of.state != NOT_HELD for of in deciding)
    return Ruling(UNDECIDED if undecided else NOT_HELD, bound, _sentence(texts), where)


def _of_places(helped: Sequence[str], gains: Sequence[str], harmed: Sequence[str], harms: bool, verb: str) -> str:
    """Describes where a method helps, and where it harms.

    Args:
        helped: Places in which all comparisons lie above 0.
        gains: Those of them where the gain may be worth having.
        harmed: Places in which a comparison lies below 0.
        harms: Whether one does over all places.
        verb: What is said of the places that are helped.
    """
    less = [place for place in helped if place not in gains]
    texts = [f"{verb} {', '.join(gains)}"] if gains else []
    texts += [f"{verb} {', '.join(less)} by less than a gain worth having"] if less else []
    texts += ["harms over all"] if harms else [f"harms on {', '.join(harmed)}"] if harmed and helped else []
    return " and ".join(texts)


def _judge_place(place: str, of: Mapping[str, Any], record: Mapping[str, Any], looks: int = 1) -> _Place:
    """One world: each of its comparisons, with intervals that are widened for the number of worlds that were looked at."""
    rule, gaps = record["rule"], {gap["against"]: gap for gap in record["comparisons"]}
    gain, wider = rule["gain"] * rule["range"], _widening(looks, _clusters(record))
    states, lows, highs, words = list[str](), list[float](), list[float](), list[str]()
    for kind in ("above", "below", "level"):
        for name in of.get(kind, ()):
            mean = float(gaps[name]["mean"])
            low, high = (float(end) + (wider - 1.0) * (float(end) - mean) for end in gaps[name]["interval"])
            words.append(f"{mean:+.3f} [{low:+.3f}, {high:+.3f}] against {name}")
            if kind == "below":
                low, high = -high, -low
            if kind == "level":
                states.append(HELD if low > -gain else NOT_HELD if high < -gain else UNDECIDED)
                continue
            states.append(NOT_HELD if high < gain else HELD if low > 0.0 else UNDECIDED)
            lows.append(low)
            highs.append(high)
    state = NOT_HELD if NOT_HELD in states else UNDECIDED if UNDECIDED in states else HELD
    least = min(highs, default=0.0)
    bound = round(least, 4) if highs else None
    helps = min(lows) > 0.0 if lows else state == HELD
    return _Place(state, helps, least < 0.0, bound, (f"{place}: " if place else "") + ", ".join(words))


def _lacking(record: Mapping[str, Any]) -> list[str]:
    """Comparisons and arms that the rule names and the record does not hold."""
    places = record["rule"]["places"].values()
    held = {gap["against"] for gap in record["comparisons"]} | {arm["name"] for arm in record["arms"]}
    names = [name for of in places for kind in ("above", "below", "level") for name in of.get(kind, ())]
    names += [end for of in places for pair in of.get("room", ()) for end in pair if isinstance(end, str)]
    return [name for name in dict.fromkeys(names) if name not in held]


def _room(record: Mapping[str, Any], pairs: Sequence[Sequence[str | float]]) -> float | None:
    """The least distance from a simple rule to an oracle."""
    means = {arm["name"]: arm["mean"] for arm in record["arms"]}

    def value(of: str | float) -> float:
        return float(means[of] if isinstance(of, str) else of)

    return min((value(oracle) - value(simple) for simple, oracle in pairs), default=None)


def _widening(looks: int, clusters: int) -> float:
    """Return how much wider a 95 % t interval is that allows for several looks (Bonferroni)."""
    if looks < 2 or clusters < 2:
        return 1.0
    from scipy.stats import t

    return float(t.ppf(1.0 - 0.025 / looks, clusters - 1) / t.ppf(0.975, clusters - 1))


def _clusters(record: Mapping[str, Any]) -> int:
    """Return how many independent units an interval is over: seeds, or what was asked where nothing is drawn."""
    many = record["seeds"] if isinstance(record["seeds"], int) and "units" not in record["rule"] else record["n"]
    return int(many)


def _sentence(words: Sequence[str], part: str = "") -> str:
    ended = [f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}" for text in (*words, part) if text]
    return " ".join(ended)
