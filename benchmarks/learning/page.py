"""Put what the recipes and RMM's reranker learned into docs/recipes.md, and the recipes' curves into docs/images.

python -m benchmarks.learning.page
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.tables import filled, markdown, takes_nothing

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "recipes.md"
PICTURES = ROOT / "docs" / "images"
FILES = {
    "strings": ROOT / "benchmarks/learning/strings.json",
    "overwrite_reading": ROOT / "benchmarks/learning/overwrite_reading.json",
    "arithmetic": ROOT / "benchmarks/learning/arithmetic.json",
    "tool_policy": ROOT / "benchmarks/learning/tool_policy.json",
    "deeper": ROOT / "benchmarks/learning/deeper.json",
    "operations": ROOT / "benchmarks/manager/operations.json",
}
SMOOTH = 4
"""Steps that a point of the reward's curve averages."""
FEW = 2
"""Groups of an update that are few to learn from."""
Record = dict[str, Any]


def interval(each: Record, sign: str = "") -> str:
    """The mean, and its interval where the record has one."""
    if "low" not in each:
        return f"{each['mean']:{sign}.2f}"
    return f"{each['mean']:{sign}.2f} ({each['low']:{sign}.2f} to {each['high']:{sign}.2f})"


def heading(record: Record, key: str, name: str) -> str:
    return f"{name}, 95 %" if "low" in record[key][0] else name


def levels(record: Record) -> str:
    rows = [
        (
            each["test"],
            each["arm"].replace("_", " "),
            interval(each),
            ", ".join(f"{value:.2f}" for value in each.get("by_seed", [])),
            counted(each),
        )
        for each in record["levels"]
    ]
    return markdown(("test set", "arm", heading(record, "levels", "mean"), "each seed", "questions"), rows, 2)


def counted(each: Record) -> str:
    """How many questions, and of how many clusters where the interval is over those."""
    questions = each.get("questions") or each["n"]
    return str(questions) if each.get("n", questions) == questions else f"{questions} of {each['n']} compositions"


def gains(record: Record) -> str:
    head = ["test set", "trained minus", heading(record, "gains", "difference"), "each seed"]
    rows = [
        [
            each["test"],
            each["over"].replace("_", " "),
            interval(each, "+"),
            ", ".join(f"{value:+.2f}" for value in gap_by_seed(record, each)),
        ]
        for each in record["gains"]
    ]
    if all("low" in each for each in record["gains"]):
        head.append("verdict")
        rows = [[*row, verdict(each)] for row, each in zip(rows, record["gains"], strict=True)]
    return markdown(head, rows, 2)


def gap_by_seed(record: Record, gain: Record) -> list[float]:
    """What each seed gained: the difference of its two levels."""
    of_seeds = {each["arm"]: each["by_seed"] for each in record["levels"] if each["test"] == gain["test"]}
    after = of_seeds.get("trained") or of_seeds["reinforced"]
    return [one - other for one, other in zip(after, of_seeds[gain["over"]], strict=True)]


def verdict(each: Record) -> str:
    if each["low"] > 0:
        return "better"
    return "worse" if each["high"] < 0 else "no difference shown"


def about(record: Record) -> str:
    config = record["configuration"]
    said = [f"{config['steps']} steps of {config['tasks_per_step']} groups of {config['group_size']}"]
    said += [f"temperature {config['temperature']:g}", f"learning rate {config['learning_rate']:g}"]
    said += [f"refill {config['refill']}"] if config["refill"] else []
    seeds = len(record["reward_by_step"])
    kind = "LoRA" if config["train"] == "lora" else "all weights"
    return f"{seeds} seed{'s' * (seeds > 1)}; {', '.join(said)}; {kind}."


def memory(record: Record) -> str:
    """How often the answer stood in the memory that the answer was given from."""
    if not record.get("written"):
        return ""
    head = ("arm", "the answer is in the last memory, 95 %", "questions")
    rows = [(each["arm"], interval(each), each["n"]) for each in record["written"]]
    said = "; ".join(
        f"trained minus {each['over']} {interval(each, '+')}, {verdict(each)}" for each in record["written_gains"]
    )
    return f"\n\n{markdown(head, rows, 1)}\n\nOf that measure: {said}."


def calls(record: Record) -> str:
    """How often the model was called for an answer, where that is measured."""
    if not record.get("calls"):
        return ""
    head = ("arm", "calls of the model per answer, 95 %", "each seed")
    rows = [
        (each["arm"].replace("_", " "), interval(each), ", ".join(f"{value:.2f}" for value in each["by_seed"]))
        for each in record["calls"]
    ]
    rule = record["rule"]
    said = (
        "Simple rules are told the whole problem and calculate with two of its numbers. The best of seven on these questions "
        f"({rule['name']}) solves {interval(rule)}. Trained minus this rule: {interval(rule['trained_minus'], '+')}, "
        f"{verdict(rule['trained_minus'])}."
    )
    used = [
        (each["arm"], *(f"{value:.2f}" for key, value in each.items() if key != "arm")) for each in record["reckoning"]
    ]
    reckoned = markdown(("arm", "share that used the calculator", "right of those", "right of the others"), used, 1)
    return f"\n\n{markdown(head, rows, 1)}\n\n{reckoned}\n\n{said}"


def learned_from(record: Record) -> str:
    """What each arm was trained on, where there were several."""
    if len(record.get("tokens", ())) < 2:
        return ""
    said = (f"{arm} {sum(of) / len(of) / 1000:,.0f}" for arm, of in record["tokens"].items())
    few = ""
    if by_step := record.get("groups_by_step"):
        each = (
            f"{arm} {sum(n <= FEW for run in of for n in run)} of {sum(map(len, of))}" for arm, of in by_step.items()
        )
        few = f" Updates with at most {FEW} groups to learn from: {', '.join(each)}."
    return f" Thousands of tokens trained on: {', '.join(said)}.{few}"


def recipe(record: Record) -> str:
    tables = f"{levels(record)}\n\n{gains(record)}{memory(record)}{calls(record)}"
    return f"{tables}\n\n{about(record)}{learned_from(record)}"


def operations(record: Record) -> str:
    measured = f"{levels(record)}\n\n{gains(record)}\n\n"
    if not record["banks"]:
        return f"{measured}{about(record)} Banks of real conversations were not built."
    rows = [
        (each["arm"].replace("_", " "), each["metric"].replace("_", " "), interval(each), each["n"])
        for each in record["banks"]
    ]
    banks = markdown(("banks of test conversations", "measure", "mean, 95 %", "questions"), rows, 2)
    return f"{measured}{banks}\n\n{about(record)} Reader: {record['reader'].split()[0]}."


def picture(name: str, record: Record) -> None:
    """Reward over the training, and what dev questions earned, a line for each seed."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 2.8), layout="constrained")
    colours = ("#3b6fb6", "#d1793c", "#4c9a6a")
    sampled = record.get("sampled_by_step") or record["reward_by_step"]
    for seed, (rewards, colour) in enumerate(zip(sampled, colours, strict=False)):
        smooth = [sum(rewards[max(0, i - SMOOTH + 1) : i + 1]) / min(i + 1, SMOOTH) for i in range(len(rewards))]
        left.plot(range(1, len(rewards) + 1), rewards, color=colour, alpha=0.25, linewidth=1)
        left.plot(range(1, len(rewards) + 1), smooth, color=colour, linewidth=1.8, label=f"seed {seed}")
        points = dev_of(record["dev_by_seed"][seed])
        right.plot([step for step, _ in points], [mean for _, mean in points], color=colour, marker="o", markersize=4)
    most = max(
        1.0, *(max(rewards) for rewards in sampled)
    )  # a small term for the form comes on top of a right operation
    left.set(title="reward of what was sampled", xlabel="update", ylim=(0, 1.02 * most))
    right.set(title="dev questions, greedy", xlabel="update", ylim=(0, 1.02))
    left.legend(frameon=False, fontsize=8)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.3)
    figure.savefig(PICTURES / f"learning_{name}.png", dpi=120)
    plt.close(figure)


def dev_of(rows: Sequence[Any]) -> list[tuple[int, float]]:
    """(step, mean) of the measure that the recipe is about."""
    if rows and isinstance(rows[0], dict):
        return [(row["step"], row["mean"]) for row in rows]
    return [(step, mean) for step, mean in rows]


def reranker(record: Record) -> str:
    """RMM: each arm's recall, its seeds, and what it gains."""
    parts = [reranked(record["test"], "LongMemEval, test")]
    if "locomo" in record:
        parts.append(reranked(record["locomo"], "LoCoMo, with what was learned on LongMemEval"))
    return "\n\n".join(parts)


def reranked(measured: Record, title: str) -> str:
    rows = []
    for each in measured["arms"]:
        gain, seeds = each.get("gain"), each.get("by_seed", [])
        spread = f"{min(seeds):.3f} to {max(seeds):.3f}" if seeds else ""
        gained = f"{gain['mean']:+.3f} ({gain['low']:+.3f} to {gain['high']:+.3f})" if gain else ""
        rows.append((each["arm"], f"{each['mean']:.3f}", spread, gained, f"{gain['p']:.2g}" if gain else ""))
    head = (f"{title}: {measured['questions']} questions", "recall@5", "seeds", "minus retriever", "p")
    return markdown(head, rows, 1)


def tuning(record: Record) -> str:
    names = record["rmm"]["words"]
    rows: list[tuple[str, ...]] = [("retriever", f"{record['retriever']:.3f}", f"{record['retriever']:.3f}", "")]
    for name in names:
        words, marks = record["rmm"]["words"][name], record["rmm"]["evidence"][name]
        rows.append((name, f"{words['recall']:.3f}", f"{marks['recall']:.3f}", f"{marks['while learning']:.3f}"))
    for ridge, recall in record["statistician"]["words"].items():
        rows.append(
            (
                f"logistic, ridge {float(ridge):g}",
                f"{recall:.3f}",
                f"{record['statistician']['evidence'][ridge]:.3f}",
                "",
            )
        )
    head = ("train and dev, cross-validated", "citations by words", "evidence as citations", "shown while learning")
    return markdown(head, rows, 1)


RENDER: dict[str, Callable[[Record], str]] = dict.fromkeys(FILES, recipe) | {"operations": operations}


def main() -> None:
    takes_nothing(__doc__)
    for name, path in FILES.items():
        if not path.is_file():  # not measured: no table
            continue
        record = json.loads(path.read_text())
        picture(name, record)
        filled(PAGE, name, f"{RENDER[name](record)}\n\n![Curves of {name}](../images/learning_{name}.png)")
    for name, table in (("rmm", reranker), ("rmm_tuned", tuning)):
        path = ROOT / f"benchmarks/learning/{name}.json"
        if path.is_file():
            filled(PAGE, name, table(json.loads(path.read_text())))


if __name__ == "__main__":
    main()
