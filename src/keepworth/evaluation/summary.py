"""Summarises the rows of an evaluation: a line per system with intervals, the gain over no memory, and where points went.

Means are over questions, as benchmarks report them; intervals are over clusters of them (conversations, haystacks). Where all
questions are asked of one memory, each question is a cluster of its own: the intervals then say how sure a number is for this
memory, and nothing of others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from keepworth.base.statistics import ALPHA, LEAST, MeanEstimate, family, pooled_estimate, score_range
from keepworth.evaluation.diagnostics import NOT_USED, where_points_go
from keepworth.evaluation.harness import DOES_NOT_FIT, Row
from keepworth.evaluation.power import fewest

BASELINE = "none"
SHOWN = "shown"
"""Replaces the stage `NOT_USED` where no reader answered."""
MARGIN = 0.1
"""The share of the median by which calls and shown tokens may differ."""
BY_TYPE = ("turn@1", "turn@5", "turn@10", "session@5", "shown")
"""The measures of evidence that are also computed for each type of question."""


def arm_of(row: Row) -> str:
    return _name(row.system, row.setting)


def _name(system: str, setting: str) -> str:
    return setting if setting == "oracle" else system if setting == "frozen" else f"{system}+{setting}"


def sum_up(rows: Sequence[Row], costs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Summarises the rows.

    Returns {"arms", "gains", "one memory"}; the last says whether all questions are of one memory. An arm has its metrics with
    intervals over clusters, evidence, costs, where points went, and under `types` metrics and evidence of each type of question,
    where there are several. Gains are those of each arm over the one without memory, question by question. Rows of several seeds
    count once a question, as their mean."""
    if alone := len({row.cluster for row in rows}) == 1:
        rows = [replace(row, cluster=row.key) for row in rows]
    by_arm: dict[str, list[Row]] = {}
    for row in rows:
        by_arm.setdefault(arm_of(row), []).append(row)
    arms = {
        arm: _arm(arm_rows, [cost for cost in costs if _name(cost["system"], cost["setting"]) == arm])
        for arm, arm_rows in by_arm.items()
    }
    gained = gains(by_arm)
    for arm, differing in unequal(arms).items():
        arms[arm]["unequal"] = differing
    return {"arms": arms, "gains": gained, "one memory": alone}


def unequal(arms: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """Returns for each arm with memory how its cost differs from the others'. It names calls of a language model, with the
    reader's, and shown tokens that differ from the median arm's by more than MARGIN."""
    with_memory = {
        name: arm
        for name, arm in arms.items()
        if name not in (BASELINE, "oracle") and arm["does not fit"] + arm["failed"] < arm["questions"] * arm["seeds"]
    }
    differing: dict[str, list[str]] = {name: [] for name in with_memory}
    for what, key in (("calls", "calls"), ("tokens", "shown tokens")):
        usual = median([arm[key] for arm in with_memory.values()]) if with_memory else 0.0
        for name, arm in with_memory.items():
            if abs(arm[key] - usual) > MARGIN * usual:
                differing[name].append(f"unequal {what} ({arm[key]:.4g} a question, {usual:.4g} usual)")
    return differing


def score(row: Row) -> float | None:
    return row.scores.get("score")


def gains(by_arm: Mapping[str, Sequence[Row]]) -> dict[str, Any]:
    """Returns for each arm the mean paired difference in score to `BASELINE`, with its 95 % interval over clusters.

    `adjusted` is the p-value of a sign-flip test of whole clusters, corrected over all arms (Holm), on which the verdict is
    based. Without `BASELINE` the result is empty."""
    if BASELINE not in by_arm:
        return {}
    base = per_question(by_arm[BASELINE], score)
    table: dict[str, dict[str, Any]] = {}
    named, of = [], []
    for arm, rows in by_arm.items():
        scores = per_question(rows, score)
        shared = [key for key in scores if key in base]
        if arm == BASELINE or not shared:
            continue
        clusters = {row.key: row.cluster for row in rows}
        values, units = [scores[key] - base[key] for key in shared], [clusters[key] for key in shared]
        bounds = (-1.0, 1.0) if score_range([*base.values(), *scores.values()]) else None
        table[arm] = _cell(pooled_estimate(values, units, within=bounds), len(shared))
        if table[arm]["clusters"] >= LEAST:
            named.append((arm, values))
            of.append(units)
    adjusted = {comparison.name: comparison.adjusted for comparison in family(named, of)}
    for arm, cell in table.items():
        cell["adjusted"] = adjusted.get(arm, 1.0)
        cell["verdict"] = verdict(cell, len(table))
    return table


def verdict(gain: Mapping[str, Any], comparisons: int = 1) -> str:
    """Returns the verdict on a gain: "helps", "harms", "no difference can be told", or that a family of `comparisons` needs more
    clusters."""
    needed = fewest(comparisons)
    if gain["clusters"] < needed and gain["adjusted"] >= ALPHA:
        among = "" if comparisons == 1 else f" for {comparisons} comparisons"
        return f"too few to tell: {needed} clusters are needed{among}"
    if gain["adjusted"] >= ALPHA or gain["low"] <= 0.0 <= gain["high"]:
        alone = gain["low"] > 0.0 or gain["high"] < 0.0
        return f"no difference can be told{f', all {comparisons} comparisons counted' if alone else ''}"
    return "helps" if gain["low"] > 0.0 else "harms"


def per_question(rows: Sequence[Row], value: Callable[[Row], float | None]) -> dict[str, float]:
    """Returns the mean of a value over the seeds of each question. Questions without one are left out."""
    numbers: dict[str, list[float]] = {}
    for row in rows:
        number = value(row)
        if number is not None:
            numbers.setdefault(row.key, []).append(number)
    return {key: sum(values) / len(values) for key, values in numbers.items()}


def _arm(rows: Sequence[Row], costs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    fits = [row for row in rows if row.error != DOES_NOT_FIT]
    types = dict.fromkeys(sorted(row.type for row in fits))
    scores = dict.fromkeys(name for row in rows for name in row.scores)
    depths = dict.fromkeys(name for row in rows for name in row.recall)
    errors = Counter(row.error for row in rows if row.error and row.error != DOES_NOT_FIT)
    answered = [row for row in fits if row.scores and row.stage]
    points = (
        where_points_go([row.stage for row in answered], [row.scores["score"] for row in answered])
        if answered
        else None
    )
    # Without a reader, shown evidence cannot count as unused.
    stages = Counter(SHOWN if row.stage == NOT_USED and not row.scores else row.stage for row in fits if row.stage)
    unjudged = Counter(row.unjudged for row in rows if row.unjudged)
    measured = max(1, len(fits))
    return {
        "questions": len({row.key for row in rows}),
        "seeds": len({row.seed for row in rows}),
        "clusters": len({row.cluster for row in rows}),
        "does not fit": len(rows) - len(fits),
        **_means(fits, list(scores), list(depths)),
        "types": {name: _means([row for row in fits if row.type == name], ["score"], BY_TYPE) for name in types}
        if len(types) > 1
        else {},
        "points": points,
        "stages": dict(stages.most_common()),
        "unjudged": dict(unjudged.most_common(3)),
        "shown items": sum(row.items for row in fits) / measured,
        "shown tokens": sum(row.tokens for row in fits) / measured,
        "calls": sum(row.calls for row in fits) / measured,
        "ask ms": 1e3 * sum(row.seconds for row in fits) / measured,
        "write ms an entry": 1e3 * sum(c["seconds"] for c in costs) / max(1, sum(c["entries"] for c in costs)),
        "bytes": max((c["bytes"] for c in costs if c.get("bytes") is not None), default=None),
        "versions": {name: version for cost in costs for name, version in cost.get("versions", {}).items()},
        "errors": dict(errors.most_common(5)),
        "failed": sum(errors.values()),
    }


def _means(rows: Sequence[Row], scores: Sequence[str], depths: Sequence[str]) -> dict[str, Any]:
    """Returns the scores and the evidence found, by name, with intervals over clusters."""
    clusters = {row.key: row.cluster for row in rows}

    def cells(names: Sequence[str], value: Callable[[Row, str], float | None]) -> dict[str, Any]:
        columns = {}
        for name in names:
            scores = per_question(rows, lambda row, name=name: value(row, name))  # type: ignore[misc]
            if scores:
                values = list(scores.values())  # rewards of an environment may be beyond 0 and 1
                mean = pooled_estimate(values, [clusters[key] for key in scores], within=score_range(values))
                columns[name] = _cell(mean, len(scores))
        return columns

    return {
        "scores": cells(scores, lambda row, name: row.scores.get(name)),
        "evidence": cells(depths, lambda row, name: row.recall.get(name)),
    }


def _cell(value: MeanEstimate, questions: int) -> dict[str, Any]:
    return {"mean": value.mean, "low": value.low, "high": value.high, "clusters": value.n, "n": questions}
