"""What every test can rely on, however the suite was started."""

from __future__ import annotations

import gc
import os
import signal
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import settings

# Tests that run beside one another have one core each. Numerical libraries read this when they are imported, here or by a
# program that a test starts.
if "PYTEST_XDIST_WORKER" in os.environ:
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")

# A shell starts what runs in its background with SIGINT ignored, and so would every program that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

LEFT_OUT = pytest.StashKey[int]()

# A machine that is busy with something else is no reason to fail.
settings.register_profile("keepworth", deadline=None)
settings.load_profile("keepworth")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """How many tests `-n auto` runs beside one another: one for each core that may be used, by affinity and quota."""
    from keepworth.models.threads import available_cores

    return available_cores()


def pytest_collection_finish(session: pytest.Session) -> None:
    """What was imported stays: no later collection of garbage walks through it again."""
    gc.collect()
    gc.freeze()


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Where tests run beside one another, each process counts what it leaves out: all count the same."""
    if items and hasattr(items[0].config, "workeroutput"):
        output = items[0].config.workeroutput
        output["left_out"] = output.get("left_out", 0) + len(items)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Every skip is counted and named, so that nobody takes what was left out for what passed."""
    reasons: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        # The place, the line and the reason.
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[" ".join(reason.removeprefix("Skipped: ").split())] += 1
    left_out = len(terminalreporter.stats.get("deselected", [])) or terminalreporter.config.stash.get(LEFT_OUT, 0)
    if reasons:
        terminalreporter.section(f"{sum(reasons.values())} skipped", sep="-")
        for reason, count in reasons.most_common():
            terminalreporter.line(f"{count:4d}  {reason}")
    if left_out:
        terminalreporter.line(f"{left_out:4d}  left out: slow, run by `make test-all`")
