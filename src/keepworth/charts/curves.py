"""The curves of a run as data, which the report and the terminal draw."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from keepworth.charts.charts import Panel, Series

Row = Mapping[str, Any]

# Names of metrics: `training/trainer.py` and `training/learner.py` write them.
# An arm is the model, then what it is shown.
ARM_NAMES = {
    "no_memory": "trained, no memory",
    "no_memory_untrained": "untrained, no memory",
    "untrained": "untrained, with memory",
    "trained": "trained, with memory",
    "wrong_memory": "trained, another question's memory",
    "wrong_memory_untrained": "untrained, another question's memory",
    "supervised": "supervised only, equal compute",
    "oracle": "trained, oracle evidence",
    "oracle_untrained": "untrained, oracle evidence",
    "reinforced": "after reinforcement",
    "warm_start": "after the supervised warm start",
    "always_add": "always ADD",
}
# On a curve an arm is what it sees: the model before training is its first point.
CURVE_NAMES = {
    "trained": "with memory",
    "no_memory": "no memory",
    "wrong_memory": "another question's memory",
    "oracle": "oracle evidence",
    "another_memory": "another memory",
    "oracle_evidence": "oracle evidence",
    "no_tool": "no tool",
}
QUESTIONS = (None, "train", "dev", "test")
"""Splits whose panel's title needs the word "questions"."""
METRIC_NAMES = {
    "f1": "Token F1",
    "token_f1": "Token F1",
    "em": "Exact match",
    "exact": "Exact match",
    "bleu1": "BLEU-1",
    "accuracy": "Accuracy",
}


def panels(metrics: Sequence[Row], evals: Sequence[Row]) -> list[Panel]:
    """Returns the panels by role, in the order of training: held-out metrics first, then the training curves that exist. Some may
    hold a single point: see `filter_drawable`."""
    held_out = _held_out(evals)
    training = [
        panel for role in dict.fromkeys(row.get("role") for row in metrics) for panel in _training(metrics, role)
    ]
    roles = dict.fromkeys(panel.role for panel in [*training, *held_out])
    return [panel for role in roles for panel in [*held_out, *training] if panel.role == role]


def filter_drawable(panels: Iterable[Panel]) -> list[Panel]:
    """Returns the panels with a curve, which needs two points. What was measured once is in the tables."""
    return [panel for panel in panels if len({step for series in panel.series for step in series.steps}) > 1]


def arm_name(arm: str, others: Iterable[str] = ()) -> str:
    """Returns the label of an arm: the model, then what it is shown. "with memory" is left out where no arm in `others` has
    another memory or none."""
    others = tuple(others)
    if arm in ("trained", "untrained") and not any("memory" in other or "oracle" in other for other in others):
        return arm
    if arm in ARM_NAMES:
        return ARM_NAMES[arm]
    shown = name_after_training(arm)
    words = shown.replace("_", " ")
    if shown != arm:
        return f"untrained, {words}"
    return f"trained, {words}" if f"{arm}_untrained" in others else words


def metric_name(metric: str) -> str:
    return METRIC_NAMES.get(metric, metric.replace("_", " ").capitalize())


def _held_out(evals: Sequence[Row]) -> list[Panel]:
    panels = []
    keys = dict.fromkeys((row.get("role"), row.get("split"), str(row["metric"])) for row in evals)
    leading = {(role, split): metric for role, split, metric in reversed(keys)}
    for role, split, metric in keys:
        rows = [r for r in evals if (r.get("role"), r.get("split"), r["metric"]) == (role, split, metric)]
        if all(row.get("low") is None for row in rows):
            continue  # a count or a share that belongs in the table
        series = _arm_series(_curves(rows))
        if len(series) > 1 and all(len(one.steps) == 1 for one in series) and len({s.steps for s in series}) > 1:
            continue  # arms measured once each, at different steps: a table, not a curve
        wide = leading[role, split] == metric
        questions = max(int(row["n"]) for row in rows)
        panels.append(
            Panel(
                key=".".join(str(part) for part in ("held_out", role, split, metric) if part),
                title=f"{metric_name(metric)}, {split or 'held-out'}{' questions' if wide and split in QUESTIONS else ''}",
                unit=f"{'mean, 95 % interval, ' if wide else ''}n = {questions:,}",
                series=series,
                role=str(role or ""),
                held_out=True,
                wide=wide,
            )
        )
    return sorted(panels, key=lambda panel: not panel.wide)


def _curves(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Returns the rows by arm. An arm that was measured before training becomes the first point of the trained arm's curve,
    unless both were measured at the same step."""
    by_arm: dict[str, list[Row]] = {}
    for row in rows:
        by_arm.setdefault(str(row["arm"]), []).append(row)
    for before in [arm for arm in by_arm if arm.endswith("untrained")]:
        after = name_after_training(before)
        if after in by_arm and not {r["step"] for r in by_arm[before]} & {r["step"] for r in by_arm[after]}:
            by_arm[after] = sorted([*by_arm.pop(before), *by_arm[after]], key=lambda row: int(row["step"]))
    return by_arm


def name_after_training(arm: str) -> str:
    """Returns the same arm after training: `no_memory` for `no_memory_untrained`, `trained` for `untrained`."""
    return "trained" if arm == "untrained" else arm.removesuffix("_untrained")


def _arm_series(by_arm: Mapping[str, Sequence[Row]]) -> tuple[Series, ...]:
    def label(arm: str, rows: Sequence[Row]) -> str:
        merged = any(str(row["arm"]) != arm for row in rows)
        return CURVE_NAMES[arm] if merged and arm in CURVE_NAMES and len(by_arm) > 1 else arm_name(arm, by_arm)

    return tuple(
        Series(
            key="trained" if arm == "with memory" else arm,
            label=label(arm, rows),
            steps=tuple(int(row["step"]) for row in rows),
            values=tuple(float(row["mean"]) for row in rows),
            low=tuple(float(row["mean"] if row.get("low") is None else row["low"]) for row in rows),
            high=tuple(float(row["mean"] if row.get("high") is None else row["high"]) for row in rows),
        )
        for arm, rows in by_arm.items()
    )


def _training(metrics: Sequence[Row], role: str | None) -> list[Panel]:
    rows = [row for row in metrics if row.get("role") == role]
    names = dict.fromkeys(name for row in rows for name, value in row.items() if isinstance(value, int | float))
    panels = []

    def add(key: str, title: str, unit: str, chosen: Mapping[str, str] | Iterable[str]) -> None:
        labels = chosen if isinstance(chosen, Mapping) else {name: _label(name) for name in chosen}
        series = tuple(line for line in (_series(rows, name, label) for name, label in labels.items()) if line.steps)
        if series:
            panels.append(Panel(f"{role}.{key}" if role else key, title, unit, series, role or ""))

    def family(prefix: str) -> list[str]:
        return [name for name in names if name.startswith(prefix)]

    def unless_flat(chosen: Mapping[str, str]) -> Mapping[str, str]:
        """Leaves out metrics with the same value everywhere, because a constant line is not informative."""
        values = {name: {row[name] for row in rows if isinstance(row.get(name), int | float)} for name in chosen}
        return {name: label for name, label in chosen.items() if len(values[name]) > 1}

    by_source = {name: name.split("/")[1] for name in family("source/") if name.endswith("/reward")}
    shown = {"memory/reward_with": "memories shown", "memory/reward_without": "none shown"}
    # If one term is the whole reward, the curve of the total would coincide with it.
    whole = any(all(row.get(name) == row.get("reward") for row in rows) for name in family("reward/"))
    terms = {name: _label(name) for name in [*(["reward"] if not whole else []), *family("reward/")] if name in names}
    # If groups were rejected, `reward` is the mean over the others.
    add("reward", "Reward per term", "mean", {**terms, "curriculum/reward_sampled": "all sampled"})
    add("by_source", "Reward by source", "mean", by_source if len(by_source) > 1 else {})
    add("by_memory", "Reward, memories shown", "mean", shown if set(shown) <= set(names) else {})
    add("loss", "Loss", "no measure of progress", ["loss"])
    lengths = {"response_length": "all", "response_length/right": "right", "response_length/wrong": "wrong"}
    add("length", "Response length", "tokens", lengths)
    add("entropy", "Entropy", "nats", ["entropy"])
    groups = {"zero_variance_groups": "equal rewards", "all_wrong_groups": "all wrong"}
    add("signal", "Groups without signal", "share", unless_flat(groups))
    endings = {
        name: _label(name).replace("max tokens", "cut off") for name in family("stop/") if name != "stop/completed"
    }
    add("endings", "Endings", "share", unless_flat(endings))
    add("invalid", "Invalid operations", "share", ["invalid_operations"])
    add("operations", "Operations", "share", family("operation/"))
    add("ess", "Effective sample size", "share", unless_flat({"ess": "ess"}))
    add(
        "lag",
        "Lag of the weights",
        "versions",
        unless_flat({"lag_mean": "mean", "lag_p95": "95 %", "lag_max": "oldest"}),
    )
    ahead = {"pipeline/running": "under way", "pipeline/finished": "waiting"}
    add("pipeline", "Collecting ahead", "groups", ahead)
    rejected = {"curriculum/sampled_groups": "sampled", "curriculum/rejected_groups": "rejected"}
    add("rejected", "Groups rejected", "groups", rejected)
    add("gap", "Sampler, learner gap", "nats", ["mismatch_mean"])
    add("kl", "KL to the reference", "nats", unless_flat({"reference_kl": "KL"}))
    clipped = {"clip_fraction_low": "low", "clip_fraction_high": "high", "masked_share": "masked"}
    add("clipped", "Clipped, masked tokens", "share", unless_flat(clipped))
    add("gradient", "Gradient norm", "", ["gradient_norm"])
    add("seconds", "Seconds by phase", "s per step", family("seconds/"))
    return panels


def _series(rows: Sequence[Row], name: str, label: str) -> Series:
    points = [(int(row["step"]), float(row[name])) for row in rows if isinstance(row.get(name), int | float)]
    return Series(name, label, tuple(step for step, _ in points), tuple(value for _, value in points))


def _label(name: str) -> str:
    if "/" in name:
        return name.split("/", 1)[1].replace("_", " ")
    return "total" if name == "reward" else name.replace("_", " ")
