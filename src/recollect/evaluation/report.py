"""The report of a run: `report.html` (one file, works offline) and `curves.png`."""

from __future__ import annotations

from pathlib import Path

from recollect.evaluation.curves import panels, write_picture
from recollect.learning.run_folder import RunFolder


def write_report(run: RunFolder) -> Path:
    """Make both anew from what the run folder holds; returns the page."""
    found = panels(run.metrics(), run.evals())
    write_picture(found, run.path / "curves.png", run.name)
    return run.path / "curves.png"
