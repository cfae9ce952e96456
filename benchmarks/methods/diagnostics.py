"""Runs a study with the 135M model and leaves its evidence, with a verdict by a rule that stands here.

    python -m benchmarks.methods.diagnostics sort

Every rule was written before a row of its seeds was seen. Where a study reads finished runs or evaluations, its command begins
with what makes them. `spurious` is an objective and is measured with the tiny network of `recipes.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.methods.recipes import PERMUTED, STRINGS, Arm, curve
from benchmarks.methods.study import parted
from benchmarks.methods.write import ABSENT, FOLDER, arm, worded, write
from benchmarks.methods.write import gap as gap_of
from benchmarks.record import arguments, save
from keepworth.evaluation.statistics import interval
from keepworth.evaluation.study import Rows, Study
from keepworth.registry import method

MODEL = "smollm2-135m-instruct"
Row = dict[str, Any]
Judge = Callable[[Mapping[str, Row]], tuple[str, str]]


@dataclass(frozen=True)
class Plan:
    """How a study is measured, and what would refute its claim.

    Attributes:
        settings: Of the study.
        controls: What could have refuted the claim.
        rule: What each verdict means, in words.
        judge: The same in code: rows by arm -> verdict and sentence.
        size: How much is asked, and what that can see.
    before: Commands that make what the study reads.
    model: Who learns or answers.
    seeds: Of several runs, which are then what intervals are over.
    also: Settings beside those of a second run of the study, of which new rows are taken.
    """

    settings: Mapping[str, Any]
    controls: tuple[str, ...]
    rule: str
    judge: Judge
    size: str
    before: str = ""
    model: str = MODEL
    seeds: Sequence[int] = ()
    also: Mapping[str, Any] = field(default_factory=dict)


def above(row: Row, value: float = 0.0) -> bool:
    return bool(row["low"] > value)


def below(row: Row, value: float = 0.0) -> bool:
    return bool(row["high"] < value)


def spread(row: Row, digits: int = 2) -> str:
    """A mean with its interval."""
    return f"{row['mean']:.{digits}f} [{row['low']:.{digits}f}, {row['high']:.{digits}f}]"


def gap(row: Row, sign: int = 1) -> str:
    """A difference with its interval. sign: -1 for the other way round."""
    low, high = sorted((sign * row["low"], sign * row["high"]))
    return worded({"mean": sign * row["mean"], "interval": [low, high]}, 2, "")


def judge_sort(rows: Mapping[str, Row]) -> tuple[str, str]:
    context, weights = rows["context, where it fits"], rows["weights"]
    over, learned = (
        rows["context, where it fits minus weights"],
        rows["weights, its text from another minus nothing shown, its text from another"],
    )
    if below(context, 0.5) or (above(weights, 0.5) and not above(over)):
        verdict = "not held"
    elif not above(context, 0.5):
        verdict = ABSENT
    else:
        verdict = "held" if above(over) and above(learned) else "held in part"
    return verdict, (
        f"The order of two sentences is told in {spread(context)} of the pairs with the whole text shown, in {spread(weights)} "
        f"from weights that were trained on the text, and in {spread(rows['nothing shown'])} from nothing; chance is .5. What a "
        f"search finds gives {spread(rows['retrieval'])}, and in reverse {spread(rows['retrieval, in reverse'])}. Context minus "
        f"weights is {gap(over)}. What the weights learned: they tell a sentence of their text from one of another text "
        f"{gap(learned)} more often than before."
    )


def judge_settings(rows: Mapping[str, Row]) -> tuple[str, str]:
    reads = rows["evidence alone minus evidence of another question"]
    context = rows["contextual, mean of positions minus parametric"]
    lacks = rows["external minus contextual, mean of positions"]
    timely = rows["external minus contextual, in order of time"]
    if not above(reads):
        verdict = ABSENT
    elif above(lacks) or not above(context):
        verdict = "not held"
    else:
        verdict = "held" if below(lacks) else "held in part"
    at = "contextual, evidence at "
    curve = {name.removeprefix(at): row for name, row in rows.items() if name.startswith(at) and " minus " not in name}
    places = ", ".join(f"{spread(row)} at {place}" for place, row in curve.items())
    return verdict, (
        f"F1 is {spread(rows['parametric'])} from weights alone, {spread(rows['contextual, mean of positions'])} with the "
        f"evidence among five entries, {spread(rows['external'])} with what a search finds and {spread(rows['evidence alone'])} "
        f"with the evidence alone ({gap(reads)} over another question's evidence). External minus contextual, taken for what "
        f"the search does not find, is {gap(lacks)}; contextual minus parametric is {gap(context)}. By place of the evidence "
        f"(0 is first, 1 is last): {places}. Not a part of the rule: in order of time, as a search shows entries, contextual is "
        f"{spread(rows['contextual, in order of time'])}, and external minus that {gap(timely)}."
    )


def judge_retention(rows: Mapping[str, Row]) -> tuple[str, str]:
    arm = f"weights of {MODEL}: "
    once, thrice = rows[f"{arm}recognition, 1 times, after 0"], rows[f"{arm}recall, 3 times, after 0"]
    most, fall = rows[f"{arm}recall, 10 times, after 0"], rows[f"{arm}recall, 10 times, after 0 minus after 10"]
    slow, never = rows[f"{arm}recall, 10 times, after 10 minus after 100"], rows[f"{arm}recall, never met, after 0"]
    stays = rows[f"{arm}recognition, 10 times, after 100"]
    parts = [once["mean"] >= 0.9, above(thrice, 0.5), above(fall) and fall["mean"] > slow["mean"]]
    if not above(most, 0.5) or above(never, 0.05):
        verdict = ABSENT
    else:
        verdict = "held" if all(parts) else "held in part" if any(parts) else "not held"
    memory = rows["memory, hybrid: recall, 1 times, after 100"]
    return verdict, (
        f"Right after a fact was met once, weights recognise it in {spread(once)}. Met three times they recall {spread(thrice)}, "
        f"ten times {spread(most)}, and of facts never met {spread(never)}. Ten later facts change recall of those met ten "
        f"times by {gap(fall, -1)} and the ninety after them by {gap(slow, -1)}; recognition is {spread(stays)} then. A memory "
        f"recalls {spread(memory)} of what it met once, a hundred facts later."
    )


def judge_books(rows: Mapping[str, Row]) -> tuple[str, str]:
    gain = rows["oracle minus none: simple recall"]
    apart = [rows[f"{of}: simple recall minus chronological awareness"] for of in ("bm25", "oracle")]
    if not above(gain):
        verdict = ABSENT
    else:
        verdict = {0: "not held", 1: "held in part", 2: "held"}[sum(map(above, apart))]

    def scores(name: str) -> str:
        return ", ".join(f"{spread(rows[f'{of}: {name}'])} {shown}" for of, shown in SHOWN.items())

    ordered = rows["oracle: chronological awareness"]["n"]
    return verdict, (
        f"Simple recall is {scores('simple recall')}; chronological awareness, of {ordered} books, is "
        f"{scores('chronological awareness')}, of which "
        f"Kendall's tau is {scores(TAU)}. Recall minus awareness is {gap(apart[0])} with a search and "
        f"{gap(apart[1])} with the right chapters. Where the right answer is none, it is {scores('of what no event matches')}. "
        "The numbers of the paper's models are not to be compared: books and questions differ."
    )


def judge_passes(rows: Mapping[str, Row]) -> tuple[str, str]:
    tier = (
        "family" if "rewarded, pass@1, family" in rows else "unseen"
    )  # as test questions were called before recipes said it
    first, last = (rows[f"rewarded minus base, pass@{k}, {tier}"] for k in (1, 16))
    coins = rows[f"rewarded minus coins, pass@1, {tier}"]
    apart = {**first, "low": first["mean"] - TWO_LOOKS * (first["mean"] - first["low"])}
    if not (above(apart) and above(coins)):
        verdict = ABSENT
    elif below(last):
        verdict = "held"
    else:
        verdict = "not held" if above(last) or last["mean"] >= first["mean"] else "held in part"
    trained = rows["rewarded minus base, pass@1, instance"]
    return verdict, (
        f"On questions that were not trained on, pass@1 is {spread(rows[f'rewarded, pass@1, {tier}'])} after true rewards, "
        f"{spread(rows[f'base, pass@1, {tier}'])} before, and {spread(rows[f'coins, pass@1, {tier}'])} after coins: {gap(first)} "
        f"over the model before and {gap(coins)} over coins. Among sixteen answers the difference to the model before is "
        f"{gap(last)}. On questions of training it is {gap(trained)} at pass@1. Only 24 updates of 16 answers. An earlier draw "
        "of 24 questions was too small to decide: +0.14 [-0.00, +0.28] over the model before at pass@1. Since these are two "
        f"looks, the interval over the model before counts {TWO_LOOKS} times as wide: from {apart['low']:+.3f} on."
    )


def judge_domains(rows: Mapping[str, Row]) -> tuple[str, str]:
    gains = {(who, where): rows[f"{who} minus base on {where}"] for who in DOMAINS for where in DOMAINS}
    where, elsewhere = rows["gain where it was trained"], rows["gain elsewhere"]
    across = [row for (who, on), row in gains.items() if who != on]
    helps, harms = any(map(above, across)), any(map(below, across))
    if not any(above(row) for (who, on), row in gains.items() if who == on):
        verdict = ABSENT
    elif helps or harms:
        verdict = "held" if helps and harms else "held in part"
    else:
        verdict = "not held" if all(-0.05 < row["low"] <= row["high"] < 0.05 for row in across) else ABSENT
    matrix = ", ".join(f"{CALLED[who]} on {CALLED[on]} {gap(row)}" for (who, on), row in gains.items())
    return verdict, (
        f"What a run is above the model before it: {matrix}. Over both it is {gap(where)} where it was trained and "
        f"{gap(elsewhere)} elsewhere. The model before is right in {spread(rows['base on rewarded'])} and "
        f"{spread(rows['base on strings'])}: where it is right in none there is nothing to lose. One seed of training; runs of "
        "minutes."
    )


def judge_choices(rows: Mapping[str, Row]) -> tuple[str, str]:
    scores = ("its own assessment of steps", "its own likelihood of steps", "the rule for steps")
    over = {name: rows[f"{name} minus one at random"] for name in (*scores, ANOTHER, "any of 32")}
    beyond = {name: rows[f"{name} minus majority of 32"] for name in scores}
    assessed = scores[0]
    if not above(over["any of 32"]) or above(over[ANOTHER]):
        verdict = ABSENT
    elif not above(over[assessed]):
        verdict = "not held"
    else:
        verdict = "held" if above(beyond[assessed]) else "held in part"
    others = "; ".join(
        f"{name} {spread(rows[name])}, {gap(over[name])} over one at random and {gap(beyond[name])} over the vote"
        for name in scores
    )
    within = rows.get("a right answer is assessed above a wrong one")
    return verdict, (
        f"One of 32 answers is right in {spread(rows['one at random'])}, the commonest in {spread(rows['majority of 32'])}, any "
        f"in {spread(rows['any of 32'])}. Chosen by {others}. By {ANOTHER} it is {gap(over[ANOTHER])} over one at random."
        + (
            f" Within a question the model assesses a right answer above a wrong one in {spread(within)}."
            if within
            else ""
        )
        + " One run of minutes, whose steps are single functions of words."
    )


REWARDED_TREE = (
    "On the tree before these the path was +0.12 [-0.06, +0.31] over straight away, over families. There 60 updates of rewards "
    "for answers about eight more families (`rewarded=60`) gave -0.23 [-0.41, -0.05] at the realm with the path named to as many "
    "that imitate these answers, and -0.04 [-0.28, +0.20] to rewards of other answers; of the eight families themselves the "
    "realm was right in 0.39 and, imitated, in 1.00: rewards taught too little to decide."
)


def judge_tree(rows: Mapping[str, Row]) -> tuple[str, str]:
    edge, deep = rows["a leaf's edge"], rows["realm: path named minus straight away"]
    near = rows["family: path named minus straight away"]
    ways, branches = ("straight away", "path named"), int(PLANS["hierarchy"].settings["branches"])
    strangers = [rows[f"realm of leaves never met: {way}"] for way in ways]
    floor = max(branches**-3, *(rows[f"family of leaves never met: {way}"]["mean"] for way in ways))
    walks = any(above(rows[f"family: {way}"], floor) for way in ways)
    if not above(edge, 0.5) or any(above(row, 1 / branches) for row in strangers) or not walks:
        verdict = ABSENT
    elif not above(deep):
        verdict = "not held"
    else:
        verdict = "held" if deep["mean"] > near["mean"] else "held in part"
    levels = "; ".join(
        f"{name} {spread(rows[f'{name}: straight away'])} straight away, {spread(rows[f'{name}: path named'])} with the path "
        f"named, of which the whole path is right in {spread(rows[f'{name}: whole path right'])}"
        for name in ("family", "order", "realm")
    )
    return verdict, (
        f"The edge above a leaf is known in {spread(edge)}. Asked of families of which no question was trained on: {levels}. "
        f"At the realm the path is {gap(deep)} over straight away. Of leaves that were never met the realm is right in "
        f"{spread(strangers[0])} and {spread(strangers[1])}, where a guess is right in one of {branches}. Six trees. "
        f"{REWARDED_TREE} A 135M model that knew edges in 0.95 told the family in 0.00 and "
        "0.02 and the realm no better than a guess: not reachable there."
    )


ANOTHER = "the assessment of another question"
TWO_LOOKS = 1.144
"""How much wider an interval of 97.5 % is than one of 95 %: one of two looks."""
CALLED = {"rewarded": "arithmetic", "strings": "strings"}
DOMAINS = tuple(CALLED)
SHORT = "--set questions=24 --set tasks_per_step=4 --set group_size=4 --set learning_rate=1e-3"
TRAINED = {
    "rewarded": f"keepworth train arithmetic --name rewarded --set steps=24 {SHORT}",
    "coins": f"keepworth train arithmetic --name coins --set steps=24 --set 'objective.advantage=Spurious(0.5)' {SHORT}",
    "strings": f"keepworth train strings --name strings --set steps=8 --set warm_start=24 {SHORT}",
}
TAU = "Kendall's tau"
SHOWN = {"none": "with no memory", "bm25": "with a search", "oracle": "with the right chapters shown"}
PLANS = {
    "sort": Plan(
        {"texts": 15, "distances": "1,2,4,8", "items": 5, "passes": 1, "rate": 1e-3},
        (
            "nothing shown",
            "what a search finds, in reverse",
            "weights tell a sentence of their text from another text's",
        ),
        "held: context above .5 and above weights, and the weights have learned their text; held in part: context above .5, but "
        "not above weights, or the weights have not learned; not held: context below .5, or weights above .5 and not below "
        "context; not reachable here: context not above .5, so that this reader tells no order from anything.",
        judge_sort,
        "60 pairs of 15 texts: about .13 to both sides, so that .63 can be told from chance",
    ),
    "three_settings": Plan(
        {"questions": 60, "words": 40},
        ("the evidence of another question", "the evidence alone", "parametric: nothing shown"),
        "held: evidence alone above another question's, contextual above parametric, external below contextual; held in part: "
        "the first two, and external is not told from contextual; not held: external above contextual, which holds the evidence "
        "always, or contextual not above parametric; not reachable here: the reader does no better with the right evidence than "
        "with another's.",
        judge_settings,
        "the 43 test questions that are answered in words, paired: about .1 of F1 to both sides",
    ),
    "retention": Plan(
        {"facts": 40, "delays": "0,10,100", "model": MODEL},
        (
            "facts that were never met",
            "a memory with the same facts",
            "ten exposures: whether these weights learn at all",
        ),
        "Three parts: one exposure is recognised in .9 or more; three exposures are recalled above .5; of ten exposures the "
        "first ten later facts take more than 0, and more than the ninety after them. held: all three; held in part: one or "
        "two; not held: none; not reachable here: ten exposures are not recalled above .5, or facts never met are above .05.",
        judge_retention,
        "40 facts of each number of exposures: about .15 to both sides, less near 0 and 1",
    ),
    "tulving": Plan(
        {},
        ("none: no memory", "oracle: the right chapters and nothing else", "questions that no event matches"),
        "The claim is taken as: models recall better than they are aware of chronology. held: simple recall above chronological "
        "awareness with a search and with the right chapters shown; held in part: in one of the two; not held: in neither; not "
        "reachable here: the right chapters do not raise simple recall over no memory, so that this reader reads no book.",
        judge_books,
        "189 questions of 10 books, 7 of which have all types: about .1 to both sides",
        "keepworth eval run event-book none bm25 --setting frozen,oracle; ",
    ),
}
PLANS["diagnose"] = Plan(
    {"run": "rewarded", "samples": 16, "questions": 60, "seed": 1},
    ("the model before", "coins: the same training with rewards that are not looked at"),
    "By questions that were not trained on. held: true rewards above the model before and above coins at k = 1, and below the "
    "model before at k = 16; held in part: at k = 16 the lead is smaller, but not below 0; not held: at k = 16 the lead is as "
    "large, or above 0; not reachable here: at k = 1 not above the model before, or not above coins: nothing was learned from "
    "rewards.",
    judge_passes,
    "60 questions of a tier, 16 answers each: about .09 to both sides at k = 1, .15 at k = 16",
    f"{TRAINED['rewarded']}; {TRAINED['coins']}; ",
    also={"against": "coins"},
)
PLANS["domains"] = Plan(
    {"trained": ",".join(DOMAINS), "questions": 60, "seed": 1},
    ("the model before, on the same questions", "the diagonal: whether training did anything where it was meant to"),
    "held: one run is above the model before where it was not trained, and another below; held in part: one of the two; not "
    "held: runs gain where they were trained, and elsewhere all intervals lie within .05 of 0; not reachable here: no run gains "
    "where it was trained, or intervals elsewhere are wider and hold 0.",
    judge_domains,
    "60 questions of each of two domains, 4 answers each: about .08 to both sides",
    f"{TRAINED['rewarded']}; {TRAINED['strings']}; ",
)
PLANS["self_prm"] = Plan(
    {"run": "composed", "samples": 32, "questions": 24},
    ("one at random", "majority of 32", "the assessment of another question", "any of 32"),
    "held: the answer that the model assesses best is right more often than the commonest; held in part: more often than one at "
    "random; not held: not told from one at random; not reachable here: any of 32 is not above one at random, so that there is "
    "nothing to choose, or scores of another question choose better than chance. The likelihood and the rule are no part of it.",
    judge_choices,
    "24 questions, 32 answers each: about .2 to both sides",
    "keepworth train strings --name composed --set steps=12 --set warm_start=80 --set worked=7 --set max_tokens=56 "
    "--set tasks_per_step=4 --set warm_start_learning_rate=1e-3 --set questions=24; ",
)
PLANS["hierarchy"] = Plan(
    {"model": "tiny", "branches": 4, "passes": 30, "rate": 3e-3},
    (
        "leaves that were never met",
        "a leaf's edge: whether the tree was learned at all",
        "the family, asked for: whether the first hop of a path can be taken at all",
    ),
    "held: the realm is right more often with the path named than straight away, and by more than the family is; held in part: "
    "the first alone; not held: the path is not above straight away; not reachable here: the edge above a leaf is not known in "
    "more than half, the realm of leaves never met is right more often than a guess, or the family is told neither way above a "
    "guess and above leaves never met: who cannot take the first hop has no path to walk. This floor was added after a run with "
    "the 135M model, and the tiny network after that; the rest was written before either. Trees are the unit since one tree "
    "(+0.12 [-0.06, +0.31] over 24 families) could not decide; these are others, and six, since an interval over five that all "
    "know every edge reaches below a half: a sixth was added to five for this.",
    judge_tree,
    "six trees, of each 128 leaves of 32 families",
    model="a network of two layers, with weights by chance at first, whose tokens are whole names",
    seeds=range(10, 16),
)
COINS: dict[str, Arm] = {
    "true rewards": ("strings", STRINGS, ()),
    "coins": ("strings", {**STRINGS, "objective": {"advantage": "Spurious(0.5)"}}, ()),
    PERMUTED: ("strings", {**STRINGS, "dealt": True}, ()),
}
COIN_RULE = (
    "Measured on a model that was imitated from a pupil who is mostly wrong, and so does not lean the right way. held in part: "
    "coins are not above the model before any reward and true rewards are above coins, as the claim says of such models (of "
    "those that lean the right way nothing is measured, so there is no held); not held: coins are above the model before any "
    "reward; not reachable here: true rewards are not above coins, so that nothing is learned in this world."
)


def measure_coins(seeds: int) -> None:
    """Coins beside true and permuted rewards, with the same tasks, steps, first weights and seeds."""
    print(f"spurious: {seeds} seeds, paired. {COIN_RULE}", flush=True)
    curves = {label: [curve(made, seed) for seed in range(seeds)] for label, made in COINS.items()}
    learned = {label: [sum(values[1:]) / len(values[1:]) for values in of] for label, of in curves.items()}
    learned["before any reward"] = [values[0] for values in curves["coins"]]
    print(curves, flush=True)
    pairs = [("true rewards", "coins"), ("coins", "before any reward"), ("coins", PERMUTED)]
    gaps = [gap_of(f"{one} minus {other}", learned[one], learned[other]) for one, other in pairs]
    over, rise, _ = (one["interval"] for one in gaps)
    verdict = ABSENT if over[0] <= 0 else "not held" if rise[0] > 0 else "held in part"
    write(
        "spurious",
        f"python -m benchmarks.methods.diagnostics spurious --seeds {seeds}",
        verdict,
        f"Coins change the score by {worded(gaps[1], 2, '')}{'' if rise[0] > 0 else ', so they raise nothing'}. With the same "
        f"steps and seeds true rewards are {worded(gaps[0], 2, '')} over coins, and coins are {worded(gaps[2], 2, '')} to "
        "permuted rewards. This is a tiny network that does not lean the right way; no model that does was measured, which is "
        "the other half of the claim.",
        model="a network of two layers, with weights by chance at first",
        n=seeds,
        seeds=seeds,
        unit="answers that are right, greedy, mean over measurements while it learns; benchmarks/methods/tiny_worlds.py",
        arms=[arm(label, values) for label, values in learned.items()],
        comparisons=gaps,
        controls=["true rewards", PERMUTED, "before any reward"],
    )


def over_seeds(runs: Sequence[Rows]) -> Rows:
    """The rows of runs of a study with different seeds, with intervals over these."""
    pooled: Rows = []
    for rows in zip(*runs, strict=True):
        low = -1.0 if " minus " in rows[0]["arm"] else 0.0
        means = [row["mean"] for row in rows]
        spread = interval(means, within=(low, 1.0))
        ends = {"mean": sum(means) / len(means), "low": spread.low, "high": spread.high}
        pooled.append({"arm": rows[0]["arm"], **ends, "n": sum(row["n"] for row in rows), "clusters": len(runs)})
    return pooled


def measure_study(name: str) -> None:
    plan, study = PLANS[name], method("study", name).make
    assert isinstance(study, Study)
    print(f"{name}: {plan.size}. {plan.rule}", flush=True)
    if plan.seeds:
        rows = over_seeds([study(**plan.settings, seed=seed)() for seed in plan.seeds])
    else:
        rows = study(**plan.settings)()
    if plan.also:
        names = {row["arm"] for row in rows}
        rows += [row for row in study(**{**plan.settings, **plan.also})() if row["arm"] not in names]
    for row in rows:
        print(f"{row['arm']}: {spread(row)} (n = {row['n']}, {row['clusters']} clusters)", flush=True)
    verdict, sentence = plan.judge({row["arm"]: row for row in rows})
    write(
        name,
        f"{plan.before}python -m benchmarks.methods.diagnostics {name}",
        verdict,
        sentence,
        model=plan.model,
        n=max(row["n"] for row in rows),
        seeds=len(plan.seeds) or 1,
        unit=f"{study.unit}; intervals over {max(row['clusters'] for row in rows)} "
        + ("seeds" if plan.seeds else "clusters, one seed of draws"),
        **parted(rows),
        controls=list(plan.controls),
    )


def say_anew(name: str) -> None:
    """Verdict and sentence from the numbers that the file of the evidence has; nothing is measured."""
    file = FOLDER / f"{name}.json"
    record = json.loads(file.read_text(encoding="utf-8"))
    rows = [(row["name"], row) for row in record["arms"]] + [(row["against"], row) for row in record["comparisons"]]
    ends = {
        arm: {"mean": row["mean"], "low": row["interval"][0], "high": row["interval"][1], "n": row.get("n")}
        for arm, row in rows
    }
    verdict, sentence = PLANS[name].judge(ends)
    save(file, {**record, "verdict": verdict, "sentence": sentence})


def main() -> None:
    parser = arguments(__doc__, json=False)
    parser.add_argument("name", choices=[*PLANS, "spurious"])
    parser.add_argument("--seeds", type=int, default=8, help="of spurious")
    parser.add_argument("--again", action="store_true", help="say the sentence of a study anew from the file's numbers")
    options = parser.parse_args()
    if options.name == "spurious":
        measure_coins(options.seeds)
    elif options.again:
        say_anew(options.name)
    else:
        measure_study(options.name)


if __name__ == "__main__":
    main()
