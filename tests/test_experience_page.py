"""Every table of docs/experience.md is made from the JSON files of the benchmarks, and no mark of a draft is left in it."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.streams import page
from benchmarks.streams.tune import RIVALS
from keepworth.environments.streams import KIND_NAMES
from keepworth.evaluation.stream_claims import METHOD

TEXT = "\n".join(each.read_text() for each in page.PAGES)
FILES = sorted({name for each in re.findall(r"results/([\w-]+)\.json", TEXT) for name in [each]})


def test_the_page_holds_what_was_measured() -> None:
    assert page.rendered(TEXT) == TEXT


def test_no_table_stands_outside_the_marks_with_numbers_of_its_own() -> None:
    outside = re.sub(r"<!-- ([\w-]+) -->.*?<!-- /\1 -->", "", TEXT, flags=re.DOTALL)
    assert not re.findall(r"^\|.*\| *`?[+-]?\d{1,3}\.\d.*\|$", outside, flags=re.MULTILINE)
    assert "@@" not in TEXT


@pytest.mark.parametrize("name", FILES)
def test_results_say_how_they_were_made(name: str) -> None:
    found = json.loads((page.RESULTS / f"{name}.json").read_text())
    if name.startswith("overhead"):
        return
    if name.startswith("labelled"):
        assert found["split"] == "held-out"
        assert found["fixed_at"]
        assert all(each["seeds"] >= 10 for each in found["streams"])
        return
    assert found["plan"]["split"] in ("dev", "held-out")
    assert found["seeds"] >= 1
    for each in found["claims"].get("against_rivals", []):
        assert each["seeds_needed"] > 1
        assert (each["verdict"] == "too few seeds") == (each["clusters"] < each["seeds_needed"])
        assert each["low"] <= each["difference"] <= each["high"]
        assert not math.isnan(each["p"])


def test_rivals_have_the_better_of_published_and_tuned_settings_for_every_kind() -> None:
    """Those that stand in a table. A policy that was added since need not be tuned until it is measured there."""
    tuned = json.loads((page.RESULTS.parent / "tuned.json").read_text())
    shown = {arm for name in page.MEASURED for arms in page.of(name)["table"].values() for arm in arms}
    assert set(tuned) == set(KIND_NAMES)
    for methods in tuned.values():
        assert set(methods) >= (shown & set(RIVALS)) - {METHOD}
        assert all(each["objective"] >= each["published_objective"] for each in methods.values())


def verdicts() -> dict[tuple[str, str], dict[str, Any]]:
    """By stream and measure, how this project's method stands to the best rival."""
    return {
        (each["stream"], each["measure"]): each
        for name in page.MEASURED
        for each in page.of(name)["claims"]["best_rival"]
    }


def ahead_of(rival: str, stream: str) -> bool:
    found = {each["name"]: each["verdict"] for each in page.of("one-step")["claims"]["against_rivals"]}
    return found[f"{METHOD} - {rival} on {stream}, stream"] == "ahead"


def means(name: str, key: str) -> dict[str, float]:
    """Over the streams of a file, of every arm that learns."""
    table = page.of(name)["table"].values()
    return {
        arm: sum(values[arm][key] for values in table) / len(table)
        for arm in (*RIVALS, METHOD)
        if all(arm in values for values in table)
    }


def highest(name: str, stream: str, key: str) -> str:
    found = page.of(name)["table"][stream]
    return max((arm for arm in (*RIVALS, METHOD) if arm in found), key=lambda arm: float(found[arm][key]))


def sure_parts() -> dict[tuple[str, str], float]:
    """What leaving a part out costs, where its interval leaves 0 out."""
    found = {}
    for each in page.of("parts")["claims"]["parts"]:
        part, _, rest = each["name"].removeprefix(f"{METHOD} - {METHOD}-without-").partition(" on ")
        if each["low"] > 0.0 or each["high"] < 0.0:
            found[part, rest.removesuffix(", stream")] = each["difference"]
    return found


def left_when_permuted() -> set[str]:
    return {
        each["name"].partition(" on ")[2]
        for name in page.MEASURED
        for each in page.of(name)["claims"]["gain_left_when_permuted"]
        if each["low"] > 0.0
    }


def gained_by_tuning(name: str, kind: str) -> float:
    found = json.loads((page.RESULTS.parent / "tuned.json").read_text())[kind][name]
    return 100 * float(found["objective"] - found["published_objective"])


STATISTICAL = ("kernel-mean", "kernel-mean-items", "nearest-mean", "linucb", "linear-thompson")
COLUMNS = [(name, key) for name in page.MEASURED for key in ("auc", "held_out")]
SENTENCES: dict[str, Callable[[], bool]] = {
    "has a higher mean than every published memory in every column": lambda: all(
        max(STATISTICAL, key=lambda arm: found.get(arm, 0.0))
        == max(found.keys() - {METHOD}, key=lambda arm: found[arm])
        for found in (means(*column) for column in COLUMNS)
    ),
    "is ahead of the best rival in none of 30 comparisons and behind it in 6": lambda: (
        Counter(each["verdict"] for each in verdicts().values()) == {"behind": 6, "cannot be told apart": 24}
    ),
    "ExpRAG gains 8 points where one decision is made and 19 where several are": lambda: (
        [round(gained_by_tuning("exprag", kind)) for kind in ("one-step", "several-steps")] == [8, 19]
    ),
    "within 2.5 points of the highest mean in every column": lambda: all(
        max(found.values()) - found["nearest-mean"] <= 0.025 for found in (means(name, "auc") for name in page.MEASURED)
    ),
    "`linucb` is best once frozen. If the world has changed, `kernel-mean` is best once frozen": lambda: (
        highest("one-step", "near-miss", "held_out") == "linucb"
        and highest("one-step", "drift", "held_out") == "kernel-mean"
    ),
    "For answers in free words, or variations of ScienceWorld's tasks, `advantage` has the highest mean": lambda: all(
        max(found, key=lambda arm: found[arm]) == METHOD
        and {each["verdict"] for (stream, _), each in verdicts().items() if stream in page.of(name)["table"]}
        == {"cannot be told apart"}
        for name in ("free-words", "science")
        for found in (means(name, "auc"), means(name, "held_out"))
    ),
    "`nearest-mean` with tuned settings for the maze and `exprecent` for the cards": lambda: (
        highest("seen-before", "t-maze", "held_out") in ("nearest-mean", METHOD)
        and highest("seen-before", "repeat-previous", "auc") == "exprecent"
    ),
    "Frozen, `linucb` is ahead of `advantage` on near-miss and `kernel-mean` on drift; elsewhere the best rival cannot": lambda: (
        [
            (stream, measure, each["rival"])
            for (stream, measure), each in verdicts().items()
            if each["verdict"] == "behind" and stream in page.of("one-step")["table"]
        ]
        == [("near-miss", "frozen", "linucb"), ("drift", "frozen", "kernel-mean")]
    ),
    "while learning it is ahead of both on near-miss, noisy-reward and drift": lambda: all(
        ahead_of(rival, stream) for rival in ("exprag", "memrl") for stream in ("near-miss", "noisy-reward", "drift")
    ),
    "On tool-graph `advantage` is behind while learning": lambda: (
        verdicts()["tool-graph", "stream"]["verdict"] == "behind"
    ),
    "On household no rival is ahead of it, and it is not ahead of the best": lambda: all(
        verdicts()["household", measure]["verdict"] == "cannot be told apart"
        and "behind" not in verdicts()["household", measure]["counts"]
        for measure in ("stream", "frozen")
    ),
    "REMEMBERER, Memento and A-MEM are far above no memory on household and tool-graph": lambda: all(
        values[arm]["auc"] > 2 * values["none"]["auc"]
        for values in page.of("several-steps")["table"].values()
        for arm in ("rememberer", "memento-np", "memento-p", "memento-kernel", "amem")
    ),
    "is behind on t-maze and repeat-previous while learning": lambda: all(
        verdicts()[stream, "stream"]["verdict"] == "behind" for stream in ("t-maze", "repeat-previous")
    ),
    "half as well as right advice would allow": lambda: all(
        values[arm]["auc"] < values["oracle"]["auc"] / 2
        for stream in ("repeat-previous", "events")
        for values in [page.of("seen-before")["table"][stream]]
        for arm in (*RIVALS, METHOD)
    ),
    "The shared model gains on near-miss and noisy-reward, and loses under drift": lambda: (
        {stream: value > 0.0 for (part, stream), value in sure_parts().items() if part == "shared"}
        == {"near-miss": True, "noisy-reward": True, "drift": False}
    ),
    "gain on benign, and so does attribution. * The baseline gains under drift alone": lambda: (
        [stream for part in ("failures", "attribution", "baseline") for which, stream in sure_parts() if which == part]
        == ["benign", "benign", "drift"]
    ),
    "Coherence loses where rewards are noisy, exploration on near-miss. * No other difference is shown": lambda: (
        {each for each in sure_parts() if each[0] in ("coherence", "exploration")}
        == {("coherence", "noisy-reward"), ("exploration", "near-miss")}
        and {part for part, _ in sure_parts()}
        == {"retrieval", "shared", "failures", "attribution", "baseline", "coherence", "exploration"}
    ),
    "on banking77 and household frozen, on events while learning, on updates while learning and on key-door": lambda: (
        left_when_permuted()
        == {
            "banking77, frozen",
            "household, frozen",
            "events, stream",
            "updates, stream",
            "key-door, stream",
            "key-door, frozen",
        }
    ),
    "On updates items shown at random gain more than that": lambda: (
        page.of("seen-before")["table"]["updates"]["random"]["auc"]
        > page.of("seen-before")["table"]["updates"][f"{METHOD}+shuffled"]["auc"]
    ),
    "and so a number of seeds, which all files have": lambda: all(
        each["verdict"] != "too few seeds"
        for name in page.MEASURED
        for each in page.of(name)["claims"]["against_rivals"]
    ),
}


@pytest.mark.parametrize("sentence", SENTENCES)
def test_what_the_page_says_in_words_is_what_was_measured(sentence: str) -> None:
    assert sentence in " ".join(TEXT.split())
    assert SENTENCES[sentence]()
