"""The training runs in a folder, as JSON: in one line each, and one of them with its curves and tables."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keepworth.episodes.errors import KeepworthError, UnknownName
from keepworth.evaluation.curves import drawn, panels
from keepworth.evaluation.tables import ResultTable, tables_of
from keepworth.learning.run_folder import RECORD, Row, RunFolder, flatten, writer
from keepworth.page.charts import as_elements, finite

POINTS = 500
"""Training steps that a curve is drawn from; of more, every second, third, ..."""
TAIL = 1 << 16
"""Bytes at the end of a file in which its last line is looked for."""


class RunList:
    """folder: holds run folders. Nothing is read before it is asked for, so that very many runs cost little."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def page(self, after: str, limit: int) -> tuple[list[dict[str, Any]], str]:
        """The newest first, those after the run of this name; and the name to go on from, "" at the end. Of a run that cannot be
        read, `problem` says why."""
        names = self._names()
        begin = names.index(after) + 1 if after in names else 0
        listed = names[begin : begin + limit]
        more = begin + limit < len(names)
        return [self._line(name) for name in listed], listed[-1] if more else ""

    def run(self, name: str) -> dict[str, Any]:
        """Raises UnknownName, and KeepworthError where the run cannot be read."""
        if name not in self._names():
            raise UnknownName("run", name, self._names()[:1000], where=str(self.folder))
        run = RunFolder.open(self.folder / name)
        metrics = run.metrics()
        every = -(-len(metrics) // POINTS) if metrics else 1
        config = flatten(run.config)
        found: dict[str, Any] = finite(
            {
                **self._line(name),
                "every": every,
                "curves": [],
                "tables": [_table(each) for each in tables_of(run)],
                "config": config,
                "environment": flatten(run.environment),
            }
        )
        for panel in drawn(panels(_thinned(metrics, every), run.evals())):
            found["curves"].append({"role": panel.role, **as_elements(panel)})
        return found

    def _names(self) -> list[str]:
        """Of all folders with a record, sound or not, the newest first."""
        try:
            with os.scandir(self.folder) as entries:
                folders = [each for each in entries if each.is_dir()]
        except OSError:
            return []
        begun: list[tuple[float, str]] = []
        for each in folders:
            try:
                begun.append((os.stat(os.path.join(each.path, RECORD)).st_mtime, each.name))
            except OSError:
                continue  # no run
        return [name for _, name in sorted(begun, reverse=True)]

    def _line(self, name: str) -> dict[str, Any]:
        run = RunFolder(self.folder / name)
        line: dict[str, Any] = {"name": name, "state": "unreadable", "problem": "", "fix": ""}
        try:
            config, created, result = run.config, run.created, run.result()
            last = _last_row(run.path / "metrics.jsonl")
            process = writer(run.path)
            line |= {
                "state": "finished" if result is not None else "running" if process else "stopped",
                "recipe": str(config.get("recipe", "")),
                "model": str(config.get("model", "")),
                "created": created,
                "step": last.get("step", 0),
                "reward": last.get("reward"),
                "headline": str((result or {}).get("headline", "")),
            }
        except KeepworthError as error:
            line |= {"problem": error.message, "fix": error.fix}
        except Exception as error:  # a record of another shape, in whatever way
            line |= {"problem": f"{type(error).__name__}: {error}", "fix": f"Correct or move away {run.path}."}
        checked: dict[str, Any] = finite(line)
        return checked


def _thinned(rows: Sequence[Row], every: int) -> list[Row]:
    """Every so many, and the last of each role."""
    last = {row.get("role"): number for number, row in enumerate(rows)}
    return [row for number, row in enumerate(rows) if number % every == 0 or last[row.get("role")] == number]


def _last_row(path: Path) -> Row:
    """The last whole line; {} where there is none. Raises KeepworthError."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL))
            lines = file.read().split(b"\n")[:-1]
    except FileNotFoundError:
        return {}
    if not lines:
        return {}
    try:
        row = json.loads(lines[-1])
    except ValueError as error:
        raise KeepworthError(f"{path}: its last line is not JSON ({error}).", "Delete the line.") from error
    return row if isinstance(row, dict) else {}


def _table(table: ResultTable) -> dict[str, Any]:
    return {
        "title": table.title,
        "note": table.note,
        "metrics": table.metrics,
        "rows": [
            {
                "label": row.label,
                "n": row.n,
                "emphasis": row.emphasis,
                "cells": [None if cell is None else [cell.mean, cell.low, cell.high] for cell in row.cells],
            }
            for row in table.rows
        ],
    }
