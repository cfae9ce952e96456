"""Several seeds of one configuration against numbers worked out by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from keepworth.episodes.errors import KeepworthError
from keepworth.evaluation.statistics import TooFewSeeds
from keepworth.evaluation.tables import table_of_rows
from keepworth.learning.run_folder import RunFolder
from keepworth.recipes.sweep import sweep

TRAINED = {0: 0.5, 1: 0.7, 2: 0.9}
UNTRAINED = {0: 0.2, 1: 0.3, 2: 0.4}
T = 4.302652729911275
"""Student's t at 0.975 with two degrees of freedom."""


def finished(runs: Path, seed: int, name: str) -> RunFolder:
    with RunFolder.create(runs / name, {"seed": seed}) as run:
        row = {"metric": "f1", "low": 0.0, "high": 1.0, "n": 20}
        rows = [
            {**row, "arm": "untrained", "mean": UNTRAINED[seed]},
            {**row, "arm": "trained", "mean": TRAINED[seed]},
            *([{**row, "arm": "control", "mean": 0.1}] if seed else []),
        ]
        run.write_result({"headline": "", "tables": [{"title": "Test questions", "note": "", "rows": rows}]})
    return run


def test_means_and_gains_over_seeds_by_hand(tmp_path: Path) -> None:
    path = sweep("mine", (0, 1, 2), tmp_path, lambda seed, name: finished(tmp_path, seed, name))
    assert path == tmp_path / "mine-seeds.json"
    result = json.loads(path.read_text())
    (table,) = result["tables"]
    assert [row["arm"] for row in table["rows"]] == ["untrained", "trained"]  # the control is not in every run
    trained = table["rows"][1]
    logit, half = (
        math.log(0.7 / 0.3),
        T * 0.2 / math.sqrt(3) / (0.7 * 0.3),
    )  # on the scale where shares stay within 0 and 1
    low, high = (1.0 / (1.0 + math.exp(-each)) for each in (logit - half, logit + half))
    assert (trained["mean"], trained["low"], trained["high"]) == pytest.approx((0.7, low, high))
    assert (trained["n"], trained["by_seed"]) == (3, {"0": 0.5, "1": 0.7, "2": 0.9})
    (gain,) = table["gains"]
    half = T * 0.1 / math.sqrt(3)  # of 0.3, 0.4 and 0.5
    assert (gain["mean"], gain["low"], gain["high"]) == pytest.approx((0.4, 0.4 - half, 0.4 + half))
    assert result["headline"] == "f1: training gained +0.400 (+0.152 to +0.648, 3 seeds) on test questions."
    assert [Path(run).name for run in result["runs"]] == ["mine-seed0", "mine-seed1", "mine-seed2"]
    table_of_rows(table["title"], table["rows"], table["note"])  # as a run's own tables are read


def test_too_few_seeds_and_one_twice_are_refused_before_anything_is_trained(tmp_path: Path) -> None:
    def never(seed: int, name: str) -> RunFolder:
        raise AssertionError

    with pytest.raises(TooFewSeeds, match="A sweep needs at least 3 seeds"):
        sweep("mine", (0, 1), tmp_path, never)
    with pytest.raises(KeepworthError, match="0, 1, 1 are not all different"):
        sweep("mine", (0, 1, 1), tmp_path, never)
