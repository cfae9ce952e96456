"""What two recipes learned, in docs/recipes.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.tables import DOCS, markdown, read, spread, verdict
from keepworth.recipes.front_door import find_recipe

Record = dict[str, Any]


def interval(cell: Record, sign: str = "") -> str:
    """The mean, and its interval where the record has one."""
    if "low" not in cell:
        return f"{cell['mean']:{sign}.2f}"
    return spread(cell, f"{sign}.2f", "({} to {})")


def heading(record: Record, key: str, name: str) -> str:
    return f"{name}, 95 %" if "low" in record[key][0] else name


def levels(record: Record) -> str:
    rows = [
        (
            level["arm"].replace("_", " "),
            interval(level),
            ", ".join(f"{value:.2f}" for value in level.get("by_seed", [])),
            counted(level),
        )
        for level in record["levels"]
    ]
    return markdown(("arm", heading(record, "levels", "mean"), "each seed", "questions"), rows)


def counted(cell: Record) -> str:
    """How many questions, and of how many clusters where the interval is over those."""
    questions = cell.get("questions") or cell["n"]
    return str(questions) if cell.get("n", questions) == questions else f"{questions} of {cell['n']} compositions"


def gains(record: Record) -> str:
    head = ["trained minus", heading(record, "gains", "difference"), "each seed"]
    rows = [
        [
            gain["over"].replace("_", " "),
            interval(gain, "+"),
            ", ".join(f"{value:+.2f}" for value in gap_by_seed(record, gain)),
        ]
        for gain in record["gains"]
    ]
    if all("low" in gain for gain in record["gains"]):
        head.append("verdict")
        rows = [[*row, verdict(gain)] for row, gain in zip(rows, record["gains"], strict=True)]
    return markdown(head, rows)


def gap_by_seed(record: Record, gain: Record) -> list[float]:
    """What each seed gained: the difference of its two levels."""
    of_seeds = {level["arm"]: level["by_seed"] for level in record["levels"] if level["test"] == gain["test"]}
    after = of_seeds.get("trained") or of_seeds["reinforced"]
    return [one - other for one, other in zip(after, of_seeds[gain["over"]], strict=True)]


def about(record: Record) -> str:
    config = record["configuration"]
    sentences = [f"{config['steps']} steps of {config['tasks_per_step']} groups of {config['group_size']}"]
    sentences += [f"temperature {config['temperature']:g}", f"learning rate {config['learning_rate']:g}"]
    sentences += [f"refill {config['refill']}"] if config["refill"] else []
    seeds = len(record["reward_by_step"])
    kind = "LoRA" if config["train"] == "lora" else "all weights"
    tier = ", ".join(dict.fromkeys(tiers(record)))
    return f"{seeds} seed{'s' * (seeds > 1)}; {', '.join(sentences)}; {kind}. Tier of the test questions: {tier}."


def tiers(record: Record) -> list[str]:
    """Of the record's test questions, as the recipe says."""
    config = record["configuration"]
    recipe = find_recipe(config["recipe"])
    test = recipe(**{key: value for key, value in config.items() if key in recipe.Config.model_fields}).test
    return [test[level["test"]].tier for level in record["levels"]]


def memory(record: Record) -> str:
    """How often the answer stood in the memory that the answer was given from."""
    if not record.get("written"):
        return ""
    levels = ", ".join(f"{level['arm']} {interval(level)}" for level in record["written"])
    return f"\n\nThe answer is in the last memory: {levels}."


def rule(record: Record) -> str:
    """The best simple rule, where one was tried."""
    if not record.get("rule"):
        return ""
    best = record["rule"]
    return (
        "\n\nSimple rules are told the whole problem and calculate with two of its numbers. The best of seven on these questions "
        f"({best['name']}) solves {interval(best)}. Trained minus this rule: {interval(best['trained_minus'], '+')}, "
        f"{verdict(best['trained_minus'])}."
    )


def recipe(record: Record) -> str:
    tables = f"{levels(record)}\n\n{gains(record)}{memory(record)}{rule(record)}"
    return f"{tables}\n\n{about(record)}"


def tables() -> Iterator[tuple[Path, str, str]]:
    for name in ("overwrite_reading", "tool_policy"):
        yield DOCS / "recipes.md", name, recipe(read(f"learning/{name}"))
