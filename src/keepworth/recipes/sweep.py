"""One configuration under several seeds: what of its result is luck.

runs/<name>-seed0/, runs/<name>-seed1/ ...   the runs, each as if it had been started alone
runs/<name>-seeds.json                       of every measurement the mean over seeds with its interval, and what training gained
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from keepworth.episodes.errors import KeepworthError
from keepworth.evaluation.statistics import LEAST, TooFewSeeds, estimate, score_range
from keepworth.learning.run_folder import RunFolder, check_writable, disk, write_json

Rows = list[dict[str, Any]]


def sweep(name: str, seeds: Sequence[int], runs: Path, trained: Callable[[int, str], RunFolder]) -> Path:
    """Train under every seed, one after the other, and write what they have in common; returns the file.

    trained: given a seed and the name of its run, trains or continues that run and returns it, finished. A sweep that was stopped
    goes on where its runs do. Raises TooFewSeeds below 3, of which no interval could be believed, and KeepworthError where a seed
    is named twice."""
    if len(set(seeds)) < len(seeds):
        raise KeepworthError(f"The seeds {', '.join(map(str, seeds))} are not all different.", "Name each one once.")
    if len(seeds) < LEAST:
        raise TooFewSeeds("A sweep", len(seeds), LEAST, "Name more, such as 0, 1 and 2.")
    path = runs / f"{name}-seeds.json"
    check_writable(path)
    finished = {seed: trained(seed, f"{name}-seed{seed}") for seed in seeds}
    result = combined({seed: run.result() or {} for seed, run in finished.items()})
    with disk(path):
        write_json(path, {**result, "runs": [str(run.path) for run in finished.values()]})
    return path


def combined(results: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """The tables that all runs have, as a run's result holds them. mean: over seeds, of each run's mean; low, high: its 95 %
    interval over seeds; n: seeds; by_seed: the values. gains: of each metric, trained less untrained, paired by seed."""
    first = next(iter(results.values()))
    tables = []
    for table in first.get("tables", ()):
        means: dict[tuple[str, str], dict[int, float]] = {}
        for seed, result in results.items():
            for row in _rows(result, table["title"]):
                means.setdefault((row["arm"], row["metric"]), {})[seed] = float(row["mean"])
        whole = {key: by_seed for key, by_seed in means.items() if len(by_seed) == len(results)}
        rows = [{"arm": arm, "metric": metric, **_over_seeds(by_seed)} for (arm, metric), by_seed in whole.items()]
        gains = [
            {"metric": metric, **_over_seeds(by_seed, whole["untrained", metric])}
            for (arm, metric), by_seed in whole.items()
            if arm == "trained" and ("untrained", metric) in whole
        ]
        note = f"{len(results)} seeds ({', '.join(map(str, results))}); 95 % t intervals over seeds."
        tables.append({"title": table["title"], "note": note, "rows": rows, "gains": gains})
    return {"headline": _headline(tables, len(results)), "tables": tables}


def _rows(result: Mapping[str, Any], title: str) -> Rows:
    return next((table["rows"] for table in result.get("tables", ()) if table["title"] == title), [])


def _over_seeds(by_seed: Mapping[int, float], base: Mapping[int, float] | None = None) -> dict[str, Any]:
    """base: what is subtracted, seed by seed."""
    within = score_range([*by_seed.values(), *(base or {}).values()])
    if base is not None:
        by_seed = {seed: value - base[seed] for seed, value in by_seed.items()}
        within = None if within is None else (-1.0, 1.0)
    found = estimate(list(by_seed.values()), within=within)
    values = {str(seed): value for seed, value in by_seed.items()}
    return {"mean": found.mean, "low": found.low, "high": found.high, "n": found.n, "by_seed": values}


def _headline(tables: Sequence[Mapping[str, Any]], seeds: int) -> str:
    if not tables or not tables[0]["gains"]:
        return ""
    gain = tables[0]["gains"][0]
    return (
        f"{gain['metric']}: training gained {gain['mean']:+.3f} ({gain['low']:+.3f} to {gain['high']:+.3f}, {seeds} seeds) on "
        f"{tables[0]['title'].lower()}."
    )
