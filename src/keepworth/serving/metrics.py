"""What a server counts, in the text format that Prometheus reads."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

from keepworth.serving.calls import known_method

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper ends of the bins of a duration."""
Labels = tuple[tuple[str, str], ...]


class Metrics:
    """Counters and histograms of durations. Thread-safe. What is counted is bounded: labels are routes, statuses and known
    methods, never what callers say."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._help: dict[str, str] = {}
        self._counts: dict[str, dict[Labels, float]] = defaultdict(lambda: defaultdict(float))
        self._bins: dict[str, dict[Labels, list[float]]] = defaultdict(dict)

    def describe(self, name: str, help: str) -> None:
        self._help[name] = help

    def count(self, name: str, value: float = 1.0, **labels: str) -> None:
        with self._lock:
            self._counts[name][tuple(sorted(labels.items()))] += value

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        with self._lock:
            bins = self._bins[name].setdefault(tuple(sorted(labels.items())), [0.0] * (len(SECONDS) + 2))
            bins[bisect_left(SECONDS, seconds)] += 1
            bins[-1] += seconds

    def served(self, method: str, route: str, status: int, seconds: float) -> None:
        """Of one answered request."""
        self.count("keepworth_requests_total", method=known_method(method), route=route, status=str(status))
        if route != "(refused)":
            self.observe("keepworth_request_seconds", seconds, route=route)

    def text(self) -> str:
        lines: list[str] = []
        with self._lock:
            for name, counts in sorted(self._counts.items()):
                lines += [f"# HELP {name} {self._help.get(name, name)}", f"# TYPE {name} counter"]
                lines += [f"{name}{_labelled(labels)} {value:g}" for labels, value in sorted(counts.items())]
            for name, histograms in sorted(self._bins.items()):
                lines += [f"# HELP {name} {self._help.get(name, name)}", f"# TYPE {name} histogram"]
                for labels, bins in sorted(histograms.items()):
                    lines += _histogram(name, labels, bins)
        return "\n".join([*lines, ""])


def _histogram(name: str, labels: Labels, bins: Sequence[float]) -> list[str]:
    lines, total = [], 0.0
    for edge, number in zip((*(f"{each:g}" for each in SECONDS), "+Inf"), bins[:-1], strict=True):
        total += number
        lines.append(f"{name}_bucket{_labelled((*labels, ('le', edge)))} {total:g}")
    return [*lines, f"{name}_sum{_labelled(labels)} {bins[-1]:.6f}", f"{name}_count{_labelled(labels)} {total:g}"]


def _labelled(labels: Labels) -> str:
    if not labels:
        return ""
    escaped = ((name, value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")) for name, value in labels)
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped) + "}"
