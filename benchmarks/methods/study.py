"""Runs a study of the registry and leaves its evidence, `benchmarks/methods/NAME.json`.

python -m benchmarks.methods.study ama
python -m benchmarks.methods.study mind_palace --rows rows.jsonl     what `keepworth methods run mind_palace --json` printed
python -m benchmarks.methods.study retention --rows 0.jsonl 1.jsonl 2.jsonl     the same of several seeds

Numbers are measured anew, and the verdict is made from them by the rule of the register (`rules.py` has the comparisons of each
study). Model and controls stay as the file has them, and so does the sentence where no `conclude` in `PLANS` computes it:
somebody reads it again by the study's own rule there, which was written before a row of its seeds was seen. Where a study reads
finished runs or evaluations, the command in its file begins with what makes them. Studies on data from elsewhere have a script of
their own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.methods.write import FOLDER, begin, measuring, worded, write
from benchmarks.record import arguments
from benchmarks.tables import read
from keepworth.evaluation.finished_runs import open_finished_run
from keepworth.evaluation.study import Rows, Study, rows_of
from keepworth.evaluation.verdicts import ABSENT
from keepworth.registry import methods

COMMAND = "python -m benchmarks.methods.study "
FIRST = {"unit": "", "model": "none", "controls": ["none was run"], "sentence": ""}
"""What a first record has until somebody writes its model, controls and sentence, and judges it by `benchmarks.methods.judge`."""
MODEL = "smollm2-135m-instruct"


@dataclass(frozen=True)
class Plan:
    """How a study is measured, and what would refute its claim.

    Attributes:
        settings: Of the study.
        rule: What the study's own rule asks of each part of the claim, in words.
        size: How much is asked, and what that can see.
        conclude: Computes what the study's own rule says, and the sentence, from the evidence's arms and comparisons, by name.
        asked: Names of the finished runs that are asked, once or several times; of a later time new rows are taken.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    rule: str = "of its file"
    size: str = ""
    asked: Sequence[Sequence[str]] = ()
    conclude: Callable[[Mapping[str, Any]], tuple[str, str]] | None = None


def conclude_loops(gains: Mapping[str, Any]) -> tuple[str, str]:
    """The verdict of ContextEvolve, by the rule in its study."""
    over = {
        name.removeprefix("three roles minus "): gain
        for name, gain in gains.items()
        if " minus " in name and " after " not in name
    }
    evenly, shuffled, oracle = "edits drawn evenly", "three roles, gains shuffled", over.pop("oracle")
    above = [name for name, gain in over.items() if gain["interval"][0] > 0]
    if oracle["mean"] - over[evenly]["mean"] > -0.05:
        verdict = ABSENT
    elif len(above) == len(over):
        verdict = "held"
    else:
        verdict = "held in part" if {evenly, shuffled} <= {*above} else "not held"
    texts = {name: f"{name} ({worded(gain, 3, '')})" for name, gain in over.items()}
    better, rest = (
        ", ".join(text for name, text in texts.items() if (name in above) == is_above) for is_above in (True, False)
    )
    later = worded(gains[f"three roles after 40 minus {evenly} after 40"], 3, "")
    return verdict, (
        f"In tuning loop nests the three roles are, after 20 scorings, above {better or 'nothing'}"
        + (f", and not above {rest}" if rest else "")
        + f"; after 40 scorings the lead over {evenly} is {later}."
    )


VERDICTS = ("not held", "held in part", "held")


def conclude_cues(rows: Mapping[str, Any]) -> tuple[str, str]:
    """The verdict of CuES, by the rule in its study."""
    verdicts, heads, texts = [], [], []
    for kind, foreign, where in (("", "kitchen", "in kitchens"), ("tools: ", "customer", "with tau2-bench's tools")):
        stay, executed = (
            f"{kind}executable of those by curiosity, {which}" for which in ("that stay", "as abstracted")
        )
        sure = ("tasks drawn from words", "no practice", f"tasks of another {foreign}", "the world's own tasks")
        rivals = (*sure, "tasks by chance", "tasks drawn from words, with hindsight")
        gains = {rival: rows[f"{kind}tasks by curiosity minus {rival}"] for rival in rivals}
        drawn, none, other, own = (gains[rival]["interval"][0] for rival in sure)
        part = drawn > 0 and none > 0
        verdicts.append(part + (part and other > 0 and own > -0.1 and rows[stay]["mean"] >= 0.8))
        heads.append(
            f"{where} ({VERDICTS[verdicts[-1]]}) practice on the made tasks is {worded(gains[sure[0]], 2, '')} above practice "
            f"on drawn ones, and {rows[stay]['mean']:.0%} of those that stay can be executed when disturbed"
        )
        texts.append(
            f"{where.capitalize()} it does {rows[f'{kind}tasks by curiosity']['mean']:.2f} of the world's own tasks, and beside "
            + "; ".join(f"{name} {worded(gain, 2, '')}" for name, gain in gains.items())
            + f"; {rows[executed]['mean']:.0%} of what was abstracted can be executed from the start."
        )
    return VERDICTS[min(verdicts)], f"{'; '.join(heads).capitalize()}. {' '.join(texts)}"


def conclude_macro_hft(rows: Mapping[str, Any]) -> tuple[str, str]:
    """The verdict of MacroHFT, by the rule in its study."""
    verdicts, heads, texts = [], [], []
    for kind, more, where in (("", (), "on made markets"), ("hourly: ", ("buy and hold",), "on real hours")):
        rivals = ("best sub-agent of the training days", "one agent of all days", *more)
        controls = ("without memory", "memory of permuted values")
        gains = {rival: rows[f"{kind}with memory minus {rival}"] for rival in (*rivals, *controls)}
        part = all(gains[rival]["interval"][0] > 0 for rival in rivals)
        verdicts.append(part + (part and all(gains[control]["interval"][0] > 0 for control in controls)))
        heads.append(
            f"{where} ({VERDICTS[verdicts[-1]]}) the mixture earns {worded(gains[rivals[-1]], 1, '')} beside {rivals[-1]}, and "
            f"{worded(gains[controls[0]], 1, '')} beside the same without memory"
        )
        texts.append(
            f"{where.capitalize()} it earns {rows[f'{kind}with memory']['mean']:.1f} % of 1,000 bars, and beside "
            + "; ".join(f"{name} {worded(gain, 1, '')}" for name, gain in gains.items())
            + f"; who knows the future earns {rows[f'{kind}who knows the future']['mean']:.1f}."
        )
    return VERDICTS[min(verdicts)], f"{'; '.join(heads).capitalize()}. {' '.join(texts)}"


PLANS = {
    "cues": Plan(rule="in the study's file", conclude=conclude_cues),
    "macro_hft": Plan(rule="in the study's file", conclude=conclude_macro_hft),
    "context_evolve": Plan(rule="in the study's file", conclude=conclude_loops),
    "domains": Plan(
        {"questions": 60, "seed": 1},
        "held: one run is above the model before where it was not trained, and another below; held in part: one of the two; not "
        "held: runs gain where they were trained, and elsewhere all intervals lie within .05 of 0; not reachable here: no run "
        "gains where it was trained, or intervals elsewhere are wider and hold 0.",
        "60 questions of each of two domains, 4 answers each: about .08 to both sides",
        asked=[["rewarded", "strings"]],
    ),
    "hierarchy": Plan(
        {"model": "tiny", "branches": 4, "passes": 30, "rate": 3e-3},
        "held: the realm is right more often with the path named than straight away, and by more than the family is; held in "
        "part: the first alone; not held: the path is not above straight away; not reachable here: the edge above a leaf is not "
        "known in more than half, the realm of leaves never met is right more often than a guess, or the family is told neither "
        "way above a guess and above leaves never met: who cannot take the first hop has no path to walk. This floor was added "
        "after a run with the 135M model, and the tiny network after that. Trees are the unit since one tree could not decide; "
        "these are others, and six, since an interval over five that all know every edge reaches below a half. As so much was "
        "chosen after numbers were seen, what the rule calls held is written as held in part.",
        "six trees, of each 128 leaves of 32 families; a command measures one",
    ),
    "pass_at_k": Plan(
        {"samples": 16, "questions": 60, "seed": 1},
        "By questions that were not trained on. held: true rewards above the model before and above coins at k = 1, and below "
        "the model before at k = 16; held in part: at k = 16 the lead is smaller, but not below 0; not held: at k = 16 the lead "
        "is as large, or above 0; not reachable here: at k = 1 not above the model before, or not above coins: nothing was "
        "learned from rewards. For a second look the interval over the model before counts 1.144 times as wide.",
        "60 questions of a tier, 16 answers each: about .09 to both sides at k = 1, .15 at k = 16",
        asked=[["rewarded"], ["rewarded", "coins"]],
    ),
    "retention": Plan(
        {"facts": 40, "delays": "0,10,100,1000", "model": MODEL},
        "Three parts: one exposure is recognised in .9 or more; three exposures are recalled above .5; of ten exposures the "
        "first ten later facts take more than 0, and more than the ninety after them. held: all three; held in part: one or "
        "two; not held: none; not reachable here: ten exposures are not recalled above .5, or facts never met are above .05.",
        "40 facts of each number of exposures: about .15 to both sides, less near 0 and 1",
    ),
    "self_prm": Plan(
        {"samples": 32, "questions": 24},
        "held: the answer that the model assesses best is right more often than the commonest; held in part: more often than "
        "one at random; not held: not told from one at random; not reachable here: any of 32 is not above one at random, so "
        "that there is nothing to choose, or scores of another question choose better than chance. The likelihood and the rule "
        "are no part of it.",
        "24 questions, 32 answers each: about .2 to both sides",
        asked=[["composed"]],
    ),
    "sort": Plan(
        {"texts": 15, "distances": "1,2,4,8", "items": 5, "passes": 1, "rate": 1e-3},
        "held: context above .5 and above weights, and the weights have learned their text; held in part: context above .5, but "
        "not above weights, or the weights have not learned; not held: context below .5, or weights above .5 and not below "
        "context; not reachable here: context not above .5, so that this reader tells no order from anything.",
        "60 pairs of 15 texts: about .13 to both sides, so that .63 can be told from chance",
    ),
    "three_settings": Plan(
        {"questions": 60, "words": 40},
        "held: evidence alone above another question's, contextual above parametric, external below contextual; held in part: "
        "the first two, and external is not told from contextual; not held: external above contextual, which holds the evidence "
        "always, or contextual not above parametric; not reachable here: the reader does no better with the right evidence than "
        "with another's.",
        "the 43 test questions that are answered in words, paired: about .1 of F1 to both sides",
    ),
    "tulving": Plan(
        {},
        "The claim is taken as: models recall better than they are aware of chronology. held: simple recall above chronological "
        "awareness with a search and with the right chapters shown; held in part: in one of the two; not held: in neither; not "
        "reachable here: the right chapters do not raise simple recall over no memory, so that this reader reads no book.",
        "189 questions of 10 books, 7 of which have all types: about .1 to both sides",
    ),
}


SMALLEST: Mapping[str, Mapping[str, Any]] = {
    "ama": {"seeds": 3, "episodes": 100, "test": 50, "encoder": "hashing"},
    "cues": {"worlds": "kitchens", "kitchens": 3, "steps": 300, "rollouts": 4},
    "context_evolve": {"rounds": 3, "kernels": 3, "first": 2055, "searches": 2},
    "difficulty_space": {"seeds": 3, "answers": 256},
    "exploitation": {"worlds": "rare", "steps": 1024, "seeds": 3, "trials": 10},
    "igl_nav": {"scenes": 3, "dial": "0.1", "budget": 20},
    "macro_hft": {"prices": "made", "markets": 3, "bars": 400, "epochs": 1},
    "mind_palace": {"limit": 12, "distractors": 2, "encoder": "hashing", "budgets": "2"},
    "starling": {"seeds": 3, "tests": 4, "episodes": 20},
    "robot_loops": {"seeds": 3, "steps": 600, "repeats": 1},
    "skillmimic_v2": {"seeds": 3, "steps": 4096, "trials": 50},
    "step_mix": {"seeds": 3, "episodes": 200},
    "shielded_units": {"seeds": 3, "steps": 500},
    "bresa": {"seeds": 8},
    "hybrid_regions": {"seeds": 3},
    "mini_diffuser": {"seeds": 3, "updates": 60},
    "oer": {"seeds": 3},
    "continual_navigation": {"seeds": 3, "updates": 20, "tests": 50},
    "vilomem": {"seeds": 3, "length": 60, "reader": "letters"},
}
"""Settings of studies under which `--smallest` shows that they run; one that is not here runs as it is."""


def main() -> None:
    parser = measuring(arguments(__doc__, json=False), smallest="the settings of SMALLEST")
    parser.add_argument("name", choices=methods("study"))
    parser.add_argument("--rows", type=Path, nargs="+", help="rows that were measured before, a file for each seed")
    options = parser.parse_args()
    begin(options)
    name, plan = options.name, PLANS.get(options.name, Plan())
    settings = {**plan.settings, **(SMALLEST.get(name, {}) if options.smallest else {})}
    study = methods("study")[name].make
    assert isinstance(study, Study)
    before = read(f"methods/{name}") if (FOLDER / f"{name}.json").exists() else {**FIRST, "command": COMMAND + name}
    print(f"{name}: {plan.size or before['unit']}. The rule of its verdict: {plan.rule}", flush=True)
    seeds = len(options.rows or [1])
    if options.rows:
        runs = [[json.loads(line) for line in path.read_text().splitlines()] for path in options.rows]
        rows = pooled(runs) if seeds > 1 else runs[0]
    else:
        rows = study(**settings)() if not plan.asked else []
    for names in plan.asked if not options.rows else ():
        arms = {row["arm"] for row in rows}
        asked = study.ask([open_finished_run(of, "runs") for of in names], **plan.settings)
        rows += [row for row in asked if row["arm"] not in arms]
    clusters = max(row["clusters"] for row in rows)
    numbers = {"n": max(row["n"] for row in rows), "seeds": clusters, "unit": study.unit}
    if plan.settings or plan.size:
        over = f"{clusters} clusters, one seed of draws" if seeds == 1 else f"{seeds} runs, each with draws of its own"
        numbers |= {"seeds": seeds, "unit": f"{study.unit}; intervals over {over}"}
    concluded = {key: before[key] for key in ("model", "controls", "sentence")}
    parts = parted(rows)
    if plan.conclude and not options.smallest:
        _, concluded["sentence"] = plan.conclude(by_name(parts))
    write(name, before["command"], **concluded, **numbers, **parts)


def pooled(runs: list[Rows]) -> Rows:
    """The rows of several runs, which are the unit of the intervals."""
    rows, seeds = list[dict[str, Any]](), list(map(str, range(len(runs))))
    for arm, *same in zip((row["arm"] for row in runs[0]), *runs, strict=True):
        (row,) = rows_of({arm: [one["mean"] for one in same]}, seeds, (-float(" minus " in arm), 1.0))
        rows.append({**row, "n": sum(one["n"] for one in same)})
    return rows


def parted(rows: Rows) -> dict[str, Any]:
    """The rows of a study as the arms and the comparisons of evidence."""
    parts: dict[str, Any] = {"arms": [], "comparisons": []}
    for row in rows:
        numbers = {"mean": round(row["mean"], 4), "interval": [round(row["low"], 4), round(row["high"], 4)]}
        if " minus " in row["arm"]:
            parts["comparisons"].append({"against": row["arm"], **numbers})
        else:
            parts["arms"].append({"name": row["arm"], **numbers, "n": row["n"]})
    return parts


def by_name(evidence: Mapping[str, Any]) -> dict[str, Any]:
    """The arms and the comparisons of evidence by name."""
    return {row.get("name") or row["against"]: row for row in (*evidence["arms"], *evidence["comparisons"])}


if __name__ == "__main__":
    main()
