"""What a run says about its costs: how long a decoding step, a read token and a learned token took.

Times come from the metrics of its updates, sizes from them and from its episodes. They are fitted by least squares with no
negative coefficient. What a run does not say is named, and taken as nothing.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from keepworth.episodes.episode import Episode
from keepworth.episodes.errors import KeepworthError
from keepworth.learning.collect.admission import Staleness
from keepworth.learning.planning.simulation import Candidate, Costs, Forecast, fitted_contention, simulated
from keepworth.learning.planning.workload import Workload, learned_tokens, recorded
from keepworth.learning.run_folder import RunFolder, flatten

FEWEST = 6
"""Updates, after the first, that coefficients can be fitted to."""
WARM = 1
"""The first update is not counted: kernels are built and caches filled in it."""
ALIKE = 0.05
"""Where the sequences of a decoding step differ by less than this share between updates, the part of a step's time that each
sequence adds cannot be told."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """costs: None where the run says nothing about decoding. measured: by name of `Costs`, what the run gave. missing: what
    it did not say, a sentence each. mode: how it sampled, "" where it does not say. seconds_per_update: the mean, without
    measuring and checkpoints."""

    costs: Costs | None
    measured: Mapping[str, Any]
    workload: Workload
    groups: int
    group_size: int
    mode: str
    max_staleness: int
    pipeline_depth: float
    slots: int
    seconds_per_update: float
    missing: tuple[str, ...]


def calibrated(run: RunFolder, role: str = "") -> Calibration:
    """role: where the run trained several. Raises KeepworthError where it has too few updates, or no episodes."""
    rows = run.metrics()
    roles = list(dict.fromkeys(str(row["role"]) for row in rows if row.get("role")))
    if role and role not in roles:
        raise KeepworthError(f"{run.path} trained no role {role!r}.", f"It trained {', '.join(roles) or 'none'}.")
    role = role or (roles[0] if roles else "")
    rows = [row for row in rows if row.get("role", role) == role and "seconds/learn" in row]
    if len(rows) < WARM + FEWEST:
        raise KeepworthError(
            f"{run.path} has {len(rows)} updates; costs are fitted to {WARM + FEWEST} or more.",
            "Let it run on, or name another.",
        )
    by_step = _groups(run, role)
    rows = [row for row in rows if row["step"] in by_step]
    workload = recorded(group for step in sorted(by_step) for group in by_step[step])
    tokens = [sum(map(learned_tokens, recorded(by_step[row["step"]]).groups)) for row in rows]
    settings = {name.rpartition(".")[2]: value for name, value in flatten(run.config).items()}
    mode = str(settings.get("sampling") or "")
    ahead = mode in ("turns", "overlap", "serial")
    group_size = max(len(group) for group in workload.groups)
    groups_per_update = round(statistics.median(len(each) for each in by_step.values()))
    whole = groups_per_update * group_size
    measured, missing = _costs(rows, tokens, workload, mode)
    return Calibration(
        costs=Costs(**measured) if "step" in measured else None,
        measured=measured,
        workload=workload,
        groups=groups_per_update,
        group_size=group_size,
        mode=mode,
        max_staleness=int(settings.get("max_staleness", 0)) if ahead else 0,
        pipeline_depth=float(settings.get("pipeline_depth", 1.0)) if ahead else 1.0,
        slots=int(settings.get("slots") or whole) if ahead else whole,
        seconds_per_update=statistics.fmean(_spent(row) for row in rows[WARM:]) + measured["between"],
        missing=tuple(missing),
    )


def as_it_ran(run: Calibration) -> Candidate:
    """The run itself as a candidate: one process."""
    rule = Staleness(run.groups, run.max_staleness, run.pipeline_depth)
    return Candidate(rule, slots=run.slots, mode="overlap" if run.mode == "overlap" else "turns")


def replayed(run: Calibration, costs: Costs) -> Forecast:
    """The run itself, simulated with its own calls as often as it has them."""
    return simulated(run.workload, costs, as_it_ran(run), updates=_updates(run))


def contended(costs: Costs, beside: Calibration) -> Costs:
    """costs: of a run in which engine and learner took turns. beside: one in which they overlapped, whose updates say how much
    they slow each other down."""
    seconds = beside.seconds_per_update
    contention = fitted_contention(beside.workload, costs, as_it_ran(beside), seconds, updates=_updates(beside))
    return replace(costs, contention=contention)


def _updates(run: Calibration) -> int:
    return max(FEWEST, len(run.workload.groups) // run.groups)


def _groups(run: RunFolder, role: str) -> dict[int, list[list[Episode]]]:
    """Trained episodes by step and group, in the order in which they were trained."""
    by_step: dict[int, dict[str, list[Episode]]] = {}
    for stored in run.episodes(arm="train", role=role or None):
        index = stored.episode.id.partition("/")[0]
        by_step.setdefault(stored.step, {}).setdefault(index, []).append(stored.episode)
    return {step: list(groups.values()) for step, groups in by_step.items()}


def _intervals(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    """Seconds from each update's end to the next one's."""
    return [float(after["time"]) - float(before["time"]) for before, after in itertools.pairwise(rows)]


def _spent(row: Mapping[str, Any]) -> float:
    """Seconds of an update that its parts say."""
    return sum(float(row.get(name, 0.0)) for name in ("seconds/sample", "seconds/learn", "seconds/publish"))


def _costs(
    rows: Sequence[Mapping[str, Any]], tokens: Sequence[int], workload: Workload, mode: str
) -> tuple[dict[str, Any], list[str]]:
    """What can be fitted, by name of `Costs`, and what is missing. tokens: that each update learned."""
    measured: dict[str, Any] = {}
    missing = []
    after = rows[WARM:]
    measured["update"], measured["learn"] = fitted(
        [[1.0, float(each)] for each in tokens[WARM:]], [row["seconds/learn"] for row in after]
    )
    if "seconds/decode" in after[0]:
        design = [[row["decode/steps"], row["decode/drawn"], row["decode/read"]] for row in after]
        base, each, measured["read"] = fitted(design, [row["seconds/decode"] for row in after])
        sequences = [row["decode/drawn"] / max(1.0, row["decode/steps"]) for row in after]
        usual = statistics.fmean(sequences)
        if statistics.pstdev(sequences) < ALIKE * usual:
            missing.append(
                f"What each sequence adds to a decoding step: all updates had about {usual:.0f} in a step. Plans for other "
                "numbers of slots are guesses."
            )
        widest = max(2.0, 2 * usual)
        measured["step"] = ((1.0, max(base + each, 1e-9)), (widest, max(base + each * widest, 1e-9)))
        if mode == "overlap":
            missing.append("What decoding takes alone: the learner computed beside it. Add a run in turns.")
    else:
        missing.append("What a decoding step takes: the run does not say. Give it with --costs.")
    waits = any(call.wait for call in workload.calls)
    if not waits:
        missing.append("How long environments took: no episode says. They are taken to answer at once.")
    if mode in ("turns", "serial", "synchronous") and not waits and "seconds/decode" in after[0]:
        calls = len(workload.calls) / len(rows)
        besides = statistics.median(row["seconds/sample"] - row["seconds/decode"] for row in after)
        measured["call"] = max(0.0, besides / calls)
    else:
        missing.append("What a call costs besides reading and drawing. It is taken as nothing.")
    if "seconds/publish" in after[0]:
        measured["publish"] = statistics.median(row["seconds/publish"] for row in after)
    else:
        missing.append("What publishing takes: the learner's own weights were in service. It is taken as nothing.")
    others = [seconds - _spent(row) for row, seconds in zip(after, _intervals(rows[WARM - 1 :]), strict=True)]
    measured["between"] = max(0.0, statistics.median(others))
    missing.append(
        "What summing gradients between learners takes: one learner had nothing to sum. It is taken as nothing."
    )
    return measured, missing


def fitted(design: Sequence[Sequence[float]], values: Sequence[float]) -> tuple[float, ...]:
    """Coefficients from 0 on with the least squares of `design @ coefficients - values`. Exact: the best of all
    choices of columns that are not 0."""
    table, target = np.asarray(design, dtype=float), np.asarray(values, dtype=float)
    best, least = np.zeros(table.shape[1]), np.inf
    for count in range(1, table.shape[1] + 1):
        for columns in itertools.combinations(range(table.shape[1]), count):
            part = table[:, columns]
            scale = np.maximum(np.abs(part).max(axis=0), 1e-300)
            solved = np.linalg.lstsq(part / scale, target, rcond=None)[0] / scale
            off = float(((part @ solved - target) ** 2).sum())
            if (solved >= 0).all() and off < least - 1e-12:
                best, least = np.zeros(table.shape[1]), off
                best[list(columns)] = solved
    return tuple(float(each) for each in best)
