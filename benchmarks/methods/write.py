"""The one form of evidence: what every command that measures methods writes as `benchmarks/methods/NAME.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from benchmarks.record import save
from benchmarks.speed.setting import machine
from keepworth.episodes.errors import KeepworthError
from keepworth.evaluation.statistics import cluster_sums, compare, interval, paired_difference
from keepworth.evaluation.study import rows_of

FOLDER = Path(__file__).parent
ABSENT = "not reachable here"


def arm(name: str, values: Sequence[float], within: tuple[float, float] | None = (0.0, 1.0)) -> dict[str, Any]:
    """The mean of an arm over clusters (seeds, rule sets, conversations) with its 95 % interval."""
    spread = interval(values, within=within)
    ends = [round(spread.low, 4), round(spread.high, 4)]
    return {"name": name, "mean": round(float(np.mean(values)), 4), "interval": ends, "n": len(values)}


def gap(name: str, values: Sequence[float], others: Sequence[float], level: float = 0.95) -> dict[str, Any]:
    """The paired difference of two arms over their common clusters."""
    compared = paired_difference(name, np.subtract(values, others).tolist(), level=level)
    ends = [round(compared.low, 4), round(compared.high, 4)]
    return {"against": name, "mean": round(compared.difference, 4), "interval": ends}


def needed(differences: Sequence[float], clusters: Sequence[str], gain: float, comparisons: int) -> int:
    """How many clusters it takes to see a paired gain of this size in four runs of five, at the first level of Holm's correction.
    differences: of a run before the test, with the cluster of each."""
    sums, counts = cluster_sums(differences, clusters)
    spread = float(np.std(np.divide(sums, counts), ddof=1))
    normal = NormalDist()
    both = normal.inv_cdf(1.0 - 0.025 / comparisons) + normal.inv_cdf(0.8)
    return int(np.ceil((both * spread / gain) ** 2))


def weigh(
    arms: Mapping[str, Sequence[float]], clusters: Sequence[str], name: str, rivals: Sequence[str]
) -> dict[str, Any]:
    """The fields of evidence of arms that answered the same questions: their means over all questions with intervals over
    clusters, and what the arm `name` is above its rivals, corrected together by Holm."""
    keyed = {arm: {str(key): float(value) for key, value in enumerate(values)} for arm, values in arms.items()}
    of_key = {str(key): cluster for key, cluster in enumerate(clusters)}
    pairs = compare(keyed, [(name, rival) for rival in rivals], of_key, within=(-1.0, 1.0))
    rows = rows_of({arm: list(of.values()) for arm, of in keyed.items()}, clusters)

    def spread(of: Any) -> list[float]:
        return [round(of["low"], 4), round(of["high"], 4)]

    return {
        "n": len(clusters),
        "clusters": len(set(clusters)),
        "arms": [
            {"name": row["arm"], "mean": round(row["mean"], 4), "interval": spread(row), "n": row["n"]} for row in rows
        ],
        "comparisons": [
            {
                "against": rival,
                "mean": round(pair.difference, 4),
                "interval": spread(asdict(pair)),
                "p": round(pair.adjusted, 4),
            }
            for rival, pair in zip(rivals, pairs, strict=True)
        ],
    }


def package(name: str, install: str) -> Path:
    """The folder of a package that carries data.

    Raises:
        KeepworthError: The package is not installed.
    """
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise KeepworthError(f"the package {name.replace('_', '-')} is not installed.", f"{install} (MIT).")
    return Path(spec.origin).parent


def worded(comparison: Mapping[str, Any], digits: int = 3, beside: str = " over ") -> str:
    """A difference with its interval, and beside what, but where `beside` is empty."""
    mean, low, high = (f"{value:+.{digits}f}" for value in (comparison["mean"], *comparison["interval"]))
    return f"{mean} [{low}, {high}]" + (beside and f"{beside}{comparison['against']}")


def write(name: str, command: str, verdict: str, sentence: str, kind: str = "", **fields: Any) -> None:
    """Writes the evidence of a method.

    Args:
        name: Of the method.
        command: What makes this file again.
        verdict: "held", "held in part", "not held" or "not reachable here".
        sentence: Why, in a sentence or two.
        kind: Of the method, where another kind has a method of the same name.
        fields: model, n, seeds, unit, arms, comparisons and controls, where something was measured.
    """
    setting = machine(1)
    evidence = {
        "name": name,
        "command": command,
        "revision": setting["revision"],
        "machine": f"{setting['processor']}, {setting['cores']} cores; Python {setting['python']}, "
        + ", ".join(f"{package} {setting['versions'][package]}" for package in ("torch", "keepworth")),
        "model": "none",
        "n": 0,
        "seeds": 0,
        "unit": "",
        "arms": [],
        "comparisons": [],
        "controls": ["none was run"],
        **fields,
        "verdict": verdict,
        "sentence": sentence,
    }
    file = FOLDER / (f"{name}.{kind}.json" if kind else f"{name}.json")
    save(file, evidence)
    print(f"{name}: {verdict}. {sentence}", flush=True)


def write_with_record(
    name: str, command: str, record: Path, conclusion: tuple[str, str], planned: Mapping[str, Any], **fields: Any
) -> None:
    """Writes what `weigh` gave as evidence, and besides the whole record, with its p values and what was planned before the test.

    Args:
        record: The file of the record.
        conclusion: Verdict and sentence.
        planned: The gain to be seen, the clusters that it takes, and the settings that were chosen, all before the test.
        fields: As of `write`, with the clusters.
    """
    verdict, sentence = conclusion
    whole = {"name": name, "command": command, "planned": planned, **fields, "verdict": verdict, "sentence": sentence}
    save(record, whole)
    plain = {key: fields[key] for key in ("model", "n", "seeds", "arms", "controls")}
    gaps = [{key: gap[key] for key in ("against", "mean", "interval")} for gap in fields["comparisons"]]
    unit = f"{fields['unit']}; {fields['clusters']} people, {planned['clusters']} planned"
    write(name, command, verdict, sentence, **plain, unit=unit, comparisons=gaps)
