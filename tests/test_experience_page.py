"""Every table of docs/experience.md with measured numbers says what the JSON files of the benchmarks say."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "streams" / "results"
PAGE = (ROOT / "docs" / "experience.md").read_text()
Row = dict[str, str]


def table(after: str) -> list[Row]:
    """The rows of the first table after the words `after`, by the names of its columns."""
    assert PAGE.count(after) == 1, after
    lines = iter(PAGE[PAGE.index(after) :].split("\n"))
    found: list[str] = []
    for line in lines:
        if line.startswith("|"):
            found.append(line)
        elif found:
            break
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in found]
    return [dict(zip(head, row, strict=True)) for row in rows]


def of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return found


def named(found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in found}


def span(each: dict[str, Any], scale: float = 1.0, digits: int = 3) -> str:
    return f"{scale * each['low']:+.{digits}f} to {scale * each['high']:+.{digits}f}"


@pytest.mark.parametrize(
    ("after", "measure"),
    [
        ("All numbers are in\n`benchmarks/streams/results/matrix.json`.", "auc"),
        ("The same memories, frozen,", "held_out"),
    ],
)
def test_success_over_the_stream_and_frozen(after: str, measure: str) -> None:
    measured = of("matrix")["table"]
    for row in table(after):
        for stream in ("near-miss", "noisy-reward", "drift", "benign"):
            assert row[stream] == f"{measured[stream][row['']][measure]:.3f}"


def test_every_arm() -> None:
    matrix, methods = of("matrix")["table"], of("methods")["table"]
    for row in table("### Every arm, and ours without each part"):
        calls = []
        for stream in matrix:
            found = matrix[stream].get(row[""]) or methods[stream][row[""]]
            assert row[stream] == f"{found['auc']:.3f}"
            calls.append(found["calls"])
        assert row["calls"] == f"{sum(calls) / len(calls):.2f}"


def test_parts() -> None:
    found = named(of("matrix")["claims"]["parts"])
    for row in table("What each part is worth,"):
        for stream in ("near-miss", "noisy-reward", "drift", "benign"):
            each = found[f"ours - ours-without-{row['left out']} on {stream}"]
            sure = each["low"] > 0.0 or each["high"] < 0.0
            assert row[stream] == f"{100 * each['difference']:+.1f}{'*' if sure else ''}"


@pytest.mark.parametrize(
    ("after", "kind"),
    [
        ("Fixed in advance, corrected together", "primary"),
        ("Not worse where nothing is hard", "not_worse"),
        ("With rewards permuted, the gain must go:", "gain_gone_when_shuffled"),
        ("With the values masked (choices", "gain_gone_when_masked"),
        ("Frozen, on held-out tasks:", "held_out"),
    ],
)
def test_comparisons(after: str, kind: str) -> None:
    found = named(of("matrix")["claims"][kind])
    rows = table(after)
    assert rows
    for row in rows:
        each = found[row["comparison"]]
        assert row.get("difference", row.get("what is left")) == f"{each['difference']:+.3f}"
        assert row.get("interval", row.get("interval (Holm, over rule sets)")) == span(each)
        if "holds" in row:
            assert row["holds"] == ("yes" if each["holds"] else "no")
        if "pairs" in row:
            assert row["pairs"] == str(each["pairs"])
            assert row["McNemar p"] == ("below 1e-5" if each["p"] < 1e-5 else f"{each['p']:.2g}")
        if (gone := row.get("share of the gain that went")) is not None:
            share = each["gone"]
            assert gone == f"{100 * share['value']:.0f} % ({100 * share['low']:.0f} % to {100 * share['high']:.0f} %)"


def test_orders_and_costs() -> None:
    measured = of("matrix")["table"]
    for row in table("it is a second look at the held-out rules."):
        for order, value in measured[row["stream"]][row["arm"]]["held_out_per_order"].items():
            assert row[order] == f"{value:.3f}"
    columns: list[tuple[str, str, str]] = [
        ("transfer", "transfer", "+.3f"),
        ("forgetting", "forgetting", ".3f"),
        ("order gap", "order_gap", ".3f"),
        ("content loss", "content_loss", ".3f"),
        ("routing loss", "routing_loss", ".3f"),
        ("words read", "words", ".0f"),
        ("success per 1,000 words", "success_per_1000_words", ".1f"),
        ("recall, ms", "recall_ms", ".2f"),
    ]
    for row in table("What it costs, what it forgets, and how good its estimates are."):
        found = measured[row["stream"]][row["arm"]]
        for column, name, digits in columns:
            assert row[column] == ("—" if math.isnan(found[name]) else format(found[name], digits)), (row, column)
        error = found["calibration"]["error"]
        assert row["calibration error"] == ("—" if error is None else f"{error:.2f}")


def percent(each: dict[str, Any]) -> str:
    shown = f"{100 * each['value']:.0f} %"
    return f"{shown} ({100 * each['low']:.0f} to {100 * each['high']:.0f})" if "low" in each else shown


def test_attacks() -> None:
    found = {(each["attack"], each["arm"]): each for each in of("attacks")["claims"]["attacks"]}
    for row in table("Held-out rules, 30 rule sets, random order; parameters of the attacks"):
        each = found[row["attack"], row["arm"]]
        assert row["rate"] == f"{each['rate']:+.3f}".replace("-0.000", "+0.000")
        assert row["success without the attack"] == f"{each['benign_success']:.3f}"
        for rival in ("exprag", "memrl"):
            cell = row[f"share of {'ExpRAG' if rival == 'exprag' else 'MemRL'}'s cut"]
            if cell != "—":
                assert cell == percent(each["cut_from"][rival])
        if (cell := row["points against ours ungated"]) != "—":
            price = each["benign_against_ours-without-gate"]
            low, high = 100 * price["low"], 100 * price["high"]
            assert cell == f"{100 * price['difference']:+.1f} ({low:+.1f} to {high:+.1f})"
        if (cell := row["put aside after"]) != "—":
            assert cell == f"{each['detection_delay']:.0f} tasks ({100 * each['detected']:.0f} % of sources)"


def test_tampering() -> None:
    found = {(each["arm"], f"{each['rate']} %"): each for each in of("tampering")["claims"]["tampering"]}
    rates = ("1 %", "5 %", "10 %")
    for row in table("Success lost when 1, 5 and 10 %"):
        for rate in rates:
            each = found[row["arm"], rate]
            assert row[rate] == f"{each['lost']:.3f} ({each['low']:.3f} to {each['high']:.3f})"
    for row in table("Share of the loss that ours avoids:"):
        for rate in rates:
            assert row[rate] == percent(found[row["of"].removesuffix("'s"), rate]["avoided_by_ours"])


def test_overhead() -> None:
    measured = of("overhead")
    names = ("scope_of_1000_among_100k", "scope_of_1000_after_3000_choices", "unscoped_100k")
    for row, name in zip(table("### What it costs"), names, strict=True):
        found = {key.removesuffix("_ms"): each["p50"] for key, each in measured[name].items() if key.endswith("_ms")}
        assert row["recall"] == f"{found['recall']:.2f} ms"
        assert row["reward"] == f"{found['reward']:.2f} ms"
        assert row["begin and act"] == f"{found['begin'] + found['act']:.2f} ms"
        assert row["recall + reward"] == f"{found['recall_and_reward']:.2f} ms"
        assert row["the engine's own search"] == f"{found['search']:.2f} ms"
        assert row["difference"] == f"{found['recall_and_reward_less_search']:.2f} ms"


WORLDS: list[tuple[str, str]] = [
    ("**The household, on held-out games**", "household"),
    ("**ScienceWorld**", "science"),
    ("**Kitchens after ALFWorld**", "alfworld"),
]


@pytest.mark.parametrize(("after", "name"), WORLDS)
def test_worlds(after: str, name: str) -> None:
    measured = of(name)
    for row in table(after):
        found = measured["table"][name][row["arm"]]
        cells: Iterator[str] = iter([*row.values()][1:])
        if len(measured["per_hundred"][row["arm"]]) > 1:
            for value in measured["per_hundred"][row["arm"]]:
                assert next(cells) == f"{value:.1f}"
        assert [*cells] == [f"{100 * found['auc']:.1f}", f"{100 * found['held_out']:.1f}"]


@pytest.mark.parametrize(
    ("after", "name"),
    [("| oracle | 48.7 |", "household"), ("| oracle | 79.2 |", "science"), ("| oracle | 48.8 |", "alfworld")],
)
def test_comparisons_of_worlds(after: str, name: str) -> None:
    found = named(of(name)["differences"])
    rest = PAGE[PAGE.index(after) :].split("\n\n")[1]
    for line in rest.split("\n")[2:]:
        comparison, difference, interval, holds = (cell.strip() for cell in line.strip("|").split("|"))
        each = found[comparison]
        assert difference == f"{100 * each['difference']:+.1f}"
        assert interval == span(each, 100.0, 1)
        assert holds == ("yes" if each["holds"] else "no")


def test_worlds_with_a_memory_of_what_was_seen() -> None:
    for row in table("python -m benchmarks.streams.worlds runs/long-term"):
        for name in ("t-maze", "repeat-previous", "key-door", "events", "updates", "tool-graph"):
            found = of(name)["table"][name][row[""]]
            assert row[name] == f"{100 * found['auc']:.1f} ({100 * found['held_out']:.1f})"
    banking = of("banking77")["table"]["banking77"]
    for row in table("**BANKING77**"):
        found = banking[row["arm"]]
        assert [row["success in 100"], row["held out"]] == [
            f"{100 * found['auc']:.1f}",
            f"{100 * found['held_out']:.1f}",
        ]


def auc(name: str) -> Callable[[str, str], str]:
    measured = of(name)["table"]
    return lambda stream, arm: f"{measured[stream][arm]['auc']:.3f}"


def test_the_scorer() -> None:
    for after, name in (
        ("60 tasks, 3 rule sets,", "scorer_dev"),
        ("Held-out rules, 5 rule sets, 300 tasks", "scorer"),
    ):
        measured = auc(name)
        for row in table(after):
            assert all(row[stream] == measured(stream, row[""]) for stream in ("near-miss", "drift", "t-maze"))
    measured = auc("scorer_failures_dev")
    for row in table("`results/scorer_failures_dev.json`"):
        assert all(row[stream] == measured(stream, row["with failed cases"]) for stream in ("near-miss", "drift"))
    claims = of("scorer")["claims"]
    for row in table("\n| comparison | difference | tasks | McNemar p | interval over rule sets |"):
        pair, _, stream = row["comparison"].partition(" on ")
        tasks, sets = claims[stream]["tasks"][pair], claims[stream]["rule_sets"][pair]
        assert row["difference"] == f"{tasks['difference']:+.3f}"
        assert row["tasks"] == str(tasks["pairs"])
        assert float(row["McNemar p"]) == pytest.approx(tasks["p"], rel=0.05)
        assert row["interval over rule sets"] == span(sets)
