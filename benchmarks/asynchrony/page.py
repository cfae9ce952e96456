"""Put the tables of this folder's JSON files into docs/asynchrony.md, so that no number is typed by hand.

python -m benchmarks.asynchrony.page
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.asynchrony.setting import HERE
from benchmarks.tables import filled, markdown, takes_nothing

PAGE = HERE.parent.parent / "docs" / "asynchrony.md"
Result = dict[str, Any]


def latency(results: Sequence[Result]) -> str:
    parts = []
    for result in results:
        compute = result["compute_seconds_per_step"]
        rows = [
            (
                arm,
                f"{statistics.median(result['seconds_per_step'][arm]):.2f} s",
                _spread(each),
                f"{each['of_which_hidden_latency']:.2f}x",
            )
            for arm, each in result["speedup"].items()
        ]
        parts.append(
            markdown((result["model"], "a step", "times as fast", "by hidden waits"), rows)
            + f"\n\nA step's compute is {compute:.2f} s, of which learning {result['learn_seconds_per_step']:.2f} s: without any "
            f"waits one core could be {result['bound_turns']:.1f}x as fast as the synchronous arm. {result['rounds']} rounds, "
            f"{result['steps_measured']} steps each, after {result['steps'] - result['steps_measured']} to fill the pipeline. "
            + _setting(result)
        )
    return "\n\n".join(parts)


SHOWN = (
    "synchronous",
    "synchronous, a quarter, longest first",
    "parked (APRIL), 1.5 batches",
    "parked, 2 batches, caches kept",
    "parked, 3 batches, caches kept",
    "parked, 3 batches, caches kept, 8 updates",
    "token budget, 3 batches, caches kept",
)
"""Schedules in the table of lengths."""


def lengths(results: Sequence[Result]) -> str:
    parts = []
    for result in results:
        rows = [
            (
                arm,
                f"{statistics.median([one['drawn_tokens_per_second'] for one in each['per_step']]):.0f}",
                _spread(each["speedup"]),
                f"{each['bound_speedup']:.2f}x",
                _measured(each, "lag_p95"),
            )
            for arm, each in result["arms"].items()
            if arm in SHOWN
        ]
        head = (result["model"], "tokens/s, end to end", "times as fast", "bound", "lag")
        parts.append(
            markdown(head, rows)
            + f"\n\n{result['episodes_per_step']} sequences an update, {result['rounds']} rounds of {result['steps_measured']} "
            "steps. " + _setting(result)
        )
    return "\n\n".join(parts)


def staleness(results: Sequence[Result]) -> str:
    (result,) = results
    rows = []
    for name, cell in result["cells"].items():
        objective, lag = name.split("/")
        rows.append(
            (
                objective,
                lag,
                f"{cell['lag_p95']:.1f}",
                str(cell["n"]),
                _paired(cell["score"]),
                _paired(cell["training_reward"]),
            )
        )
    head = (
        "objective",
        "bound",
        "lag measured",
        "seeds",
        "score (minus synchronous)",
        "reward over training (minus synchronous)",
    )
    rates = ", ".join(f"{name} {rate:g}" for name, rate in result["learning_rates"]["chosen"].items())
    return markdown(head, rows) + f"\n\nLearning rates: {rates}. " + _setting(result)


def _measured(arm: dict[str, Any], name: str) -> str:
    return f"{statistics.fmean(one[name] for one in arm['per_step']):.1f}" if name in arm["per_step"][0] else ""


def _paired(cell: dict[str, Any]) -> str:
    minus = cell["minus_synchronous"]
    own = f"{cell['mean']:.3f}"
    return own if minus["low"] == minus["high"] == 0 else f"{own} ({_difference(minus)})"


def _difference(minus: dict[str, float], digits: int = 3) -> str:
    return f"{minus['mean']:+.{digits}f}, {minus['low']:+.{digits}f} to {minus['high']:+.{digits}f}"


def kills(results: Sequence[Result]) -> str:
    return "\n\n".join(map(_kills_of, results))


def _interval(each: dict[str, float]) -> str:
    return f"{each['mean']:.2f} ({each['low']:.2f} to {each['high']:.2f})"


def _share(each: dict[str, float]) -> str:
    return f"{100 * each['closed']:.0f} % ({100 * each['low']:.0f} to {100 * each['high']:.0f})"


def _kills_of(result: Result) -> str:
    parts = [f"{result['model']}:"]
    if serial := result.get("serial"):
        parts.append(
            f"`serial`: {serial['kills']} kills over {serial['runs']} runs (up to {serial['most_kills_of_one_run']} of one run): "
            "weights, optimiser, memory (content hash, journal position) and metric rows "
            f"{'identical' if serial['identical'] else 'NOT identical'} to a run that was left alone."
        )
    if overlap := result.get("overlap"):
        parts.append(
            f"`overlap`: {overlap['kills']} kills over {overlap['runs']} runs; "
            f"{overlap['groups_finished_and_untrained_at_kills']} groups were finished and untrained when it struck: "
            f"{overlap['lost']} lost, {overlap['trained_twice']} trained "
            f"twice, {overlap['missing_from_steps']} missing from an update."
        )
    return "\n".join(parts) + f" {_setting(result)}"


def _spread(ratio: dict[str, float], digits: int = 2) -> str:
    return f"**{ratio['median']:.{digits}f}x** ({ratio['lowest']:.{digits}f} to {ratio['highest']:.{digits}f})"


def _setting(result: Result) -> str:
    machine = result["machine"]
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['threads']} thread a side, load average "
        f"{machine['load_average_at_start']:.1f} at the start; torch "
        f"{machine['versions']['torch']}; revision {machine['revision']}, {machine['measured_at'][:10]}."
    )


TABLES: dict[str, tuple[Callable[[Sequence[Result]], str], tuple[str, ...]]] = {
    "latency": (latency, ("latency.json", "latency_135m.json")),
    "lengths": (lengths, ("lengths.json", "lengths_135m.json")),
    "staleness": (staleness, ("staleness.json",)),
    "kills": (kills, ("kills.json", "kills_135m.json")),
}


def main() -> None:
    takes_nothing(__doc__)
    for name, (render, files) in TABLES.items():
        found = [json.loads((HERE / each).read_text()) for each in files if (HERE / each).exists()]
        if not found:
            print(f"{files[0]} is missing: run `python -m benchmarks.asynchrony.{files[0].removesuffix('.json')}`")
            continue
        filled(PAGE, name, render(found))


if __name__ == "__main__":
    main()
