"""What other commands measured of recipes, as evidence: see `benchmarks.methods.recipes`, which has the rule of verdicts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.methods.write import ABSENT, FOLDER, arm, gap, write


def stored(name: str) -> None:
    """The evidence of what other commands measured."""
    take, revision, sentence = STORED[name]
    fields = take(name)
    above = {one["against"] for one in fields["comparisons"] if one["interval"][0] > 0}
    beside = {against for against in above if not against.startswith(("untrained", "imitated"))}
    verdict = fields.pop("verdict", "held in part" if beside and above - beside else "not held")
    said = f"{'; '.join(map(spoken, fields['comparisons']))}. {sentence}"
    write(name, fields.pop("command"), verdict, said, revision=revision, machine=MACHINE, **fields)


def credit(name: str) -> dict[str, Any]:
    """The form of credit of a recipe against the reward of the whole episode."""
    measured = json.loads((FOLDER.parent / "writing" / "credit.json").read_text(encoding="utf-8"))
    world, form = measured["worlds"]["4 of 16"], {"fine_mem": "attribution", "memory_r2": "local + global"}[name]
    rows = [row for row in world["rows"] if row["form"] in (form, "episode", "worth, rewards permuted")]
    (against,) = [row for row in world["against"] if row["form"] == form]
    return {
        "command": measured["command"],
        "model": "a linear policy",
        "n": rows[0]["clusters"],
        "seeds": rows[0]["seeds"],
        "unit": "share of the evidence that is kept, 4 of 16 facts of LongMemEval, answers replayed from a log",
        "arms": [
            {"name": row["form"], "mean": row["evidence"], "interval": [row["low"], row["high"]], "n": row["clusters"]}
            for row in rows
        ],
        "comparisons": [
            {
                "against": "the reward of the episode",
                "mean": against["difference"],
                "interval": [against["low"], against["high"]],
            }
        ],
        "controls": ["the reward of the episode", "permuted rewards (of another form of credit)"],
    }


def learned(name: str) -> dict[str, Any]:
    """What the recipe learned with a real model."""
    file, test = {"strings": ("strings", "unseen compositions of "), "arithmetic": ("tool_policy", "svamp")}[name]
    measured = json.loads((FOLDER.parent / "learning" / f"{file}.json").read_text(encoding="utf-8"))
    levels = [level for level in measured["levels"] if level["test"].startswith(test)]
    gains = [
        gain for gain in measured["gains"] if gain["test"].startswith(test) and gain["over"] != "no_tool_untrained"
    ]
    return {
        "command": f"python -m benchmarks.learning.recipes {file}",
        "model": measured["configuration"]["model"],
        "n": levels[0]["questions"],
        "seeds": 3,
        "unit": measured["what"],
        "arms": [arm(f"{level['arm']}, {level['test']}", level["by_seed"]) for level in levels],
        "comparisons": [gap(f"{gain['over']}, {gain['test']}", gain["by_seed"], [0.0] * 3) for gain in gains],
        "controls": sorted({level["arm"] for level in levels} - {"trained"}),
    }


def short(name: str) -> dict[str, Any]:
    """Four updates of a real model, which can tell no more than that the recipe runs."""
    measured = json.loads((FOLDER.parent / "writing" / "recipes.json").read_text(encoding="utf-8"))[name]
    rows = [row for row in measured["measured"]["test"]["arms"] if row["metric"] == "evidence_kept"]
    gaps = [row for row in measured["measured"]["test"]["gaps"] if row["metric"] == "evidence_kept"]
    return {
        "command": measured["command"],
        "model": "smollm2-135m-instruct",
        "n": rows[0]["clusters"],
        "seeds": measured["seeds"],
        "unit": "share of the evidence that is kept, 4 of 16 facts of LongMemEval",
        "arms": [
            {"name": row["arm"], "mean": row["mean"], "interval": [row["low"], row["high"]], "n": row["clusters"]}
            for row in rows
        ],
        "comparisons": [
            {"against": row["minus"], "mean": row["difference"], "interval": [row["low"], row["high"]]} for row in gaps
        ],
        "controls": sorted({row["arm"] for row in rows} - {"trained"}),
        "verdict": ABSENT,
    }


def spoken(one: Mapping[str, Any]) -> str:
    return f"{one['mean']:+.2f} [{one['interval'][0]:+.2f}, {one['interval'][1]:+.2f}] over {one['against']}"


MACHINE = "Linux-6.18.44 x86_64, Python 3.11.7, torch 2.13.0+cpu, keepworth 0.1.0"
STORED: dict[str, tuple[Callable[[str], dict[str, Any]], str, str]] = {
    "strings": (
        learned,
        "a2dfe1dc",
        "Seven compositions of an earlier task of six functions, without a supervised or a permuted arm; that a skill carries "
        "over to deeper ones is not shown.",
    ),
    "arithmetic": (
        learned,
        "eab32ff9",
        "The best of seven simple rules, told the whole problem, is not shown to be worse: +0.04 [-0.04, +0.12].",
    ),
    "memory_r2": (
        credit,
        "f3033703",
        "Its two advantages, added; of 32 facts it keeps 0.10 less. In a language model, six updates lost.",
    ),
    "fine_mem": (
        credit,
        "f3033703",
        "Its shares of the reward alone; of 32 facts they keep 0.16 less. In a language model, six updates gained nothing.",
    ),
    "mem_alpha": (
        short,
        "d01ec261",
        "Four updates, ten questions, one seed, no permuted arm. A tiny network, tried on a bank of one fact, did not learn its "
        "calls in 64 updates, with its rewards or with the answer's alone (right 0.25 and 0.19, before them 0.22).",
    ),
    "agemem": (
        short,
        "2d913c3c",
        "Four updates, ten questions, one seed, no permuted arm. A tiny network, tried on a bank of one fact, did not learn its "
        "three stages in 32 updates (right 0.00 to 0.22, before them 0.22).",
    ),
}
