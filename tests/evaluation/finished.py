"""Folders of finished evaluations, written by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from keepworth.evaluation.harness import Row


def evaluation(folder: Path, scores: Any, types: Sequence[str] = ("",), clusters: Sequence[str] = ()) -> Path:
    """A finished evaluation.

    Args:
        folder: Where it is written.
        scores: By system, of each question the scores of its seeds.
        types: Of the questions, over and over.
        clusters: Each of as many questions as there are types; every question by itself where there are none.
    """
    folder.mkdir()
    rows = []
    for system, questions in scores.items():
        for key, seeds in enumerate(questions):
            cluster = clusters[key // len(types)] if clusters else f"q{key}"
            about = (f"q{key}", cluster, types[key % len(types)], system, "frozen")
            rows += [Row(*about, seed, scores={"score": score}) for seed, score in enumerate(seeds)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows))
    (folder / "plan.json").write_text("{}")
    (folder / "summary.json").write_text("{}")
    return folder
