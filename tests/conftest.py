"""What every test can rely on, however the suite was started."""

from __future__ import annotations

import gc
import signal
from collections import Counter

import pytest
from hypothesis import settings

# A shell starts what runs in its background with SIGINT ignored, and so would every program that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A machine that is busy with something else is no reason to fail.
settings.register_profile("keepworth", deadline=None)
settings.load_profile("keepworth")


def pytest_collection_finish(session: pytest.Session) -> None:
    """What was imported stays: no later collection of garbage walks through it again."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Every skip is counted and named, so that nobody takes what was left out for what passed."""
    reasons: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        # The place, the line and the reason.
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[" ".join(reason.removeprefix("Skipped: ").split())] += 1
    left_out = len(terminalreporter.stats.get("deselected", []))
    if reasons:
        terminalreporter.section(f"{sum(reasons.values())} skipped", sep="-")
        for reason, count in reasons.most_common():
            terminalreporter.line(f"{count:4d}  {reason}")
    if left_out:
        terminalreporter.line(f"{left_out:4d}  left out: slow, run by `make test-all`")
