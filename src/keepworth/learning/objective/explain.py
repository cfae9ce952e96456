"""Explain: an objective in words and formulas, written from its fields, so that it cannot disagree with what runs.

Free of torch.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from typing import Any, cast

from keepworth.learning.objective import parts
from keepworth.learning.objective.inputs import episode_inputs, inputs
from keepworth.learning.objective.options import Objective
from keepworth.learning.objective.presets import Citation, preset, source_of

_AGGREGATIONS = {
    "token-mean": "1/(all tokens) sum_i sum_t",
    "seq-mean-token-mean": "1/N sum_i 1/T_i sum_t",
    "seq-mean-token-sum": "1/N sum_i sum_t",
    "constant": "1/(N * length_budget) sum_i sum_t",
}

_ANCHORS = {
    "proximal": "lp_proximal, recomputed before the first update",
    "behaviour": "lp_behaviour, the sampler's",
    "interpolated": "lp_behaviour + (lag-1)/lag (lp - lp_behaviour), detached",
    "current": "the current policy, detached",
}


def explain(name: str) -> str:
    """What the preset of that name computes, where it comes from and what about it is unverified.

    Raises UnknownName.
    """
    return described(preset(name), source_of(name))


def described(objective: Objective, source: Citation | None = None) -> str:
    """The same for any objective, with the source's remarks if there is one."""
    lines = [objective.name]
    if source is not None:
        arxiv = f" (arXiv {source.arxiv})" if source.arxiv else ""
        lines += [f"  {source.title}{arxiv}", f"  read from: {_STATUS[source.status]}"]
    lines += ["", "minimise", *(f"  {line}" for line in formula(objective)), "", "where"]
    lines += [f"  {symbol:<6} {meaning}" for symbol, meaning in symbols(objective)]
    rules = controls(objective)
    if rules:
        lines += ["", "from step to step", *(f"  {rule}" for rule in rules)]
    needs = [*inputs(objective), *(f"in its episodes: {value}" for value in episode_inputs(objective))]
    if source is not None and source.needs:
        needs.append(source.needs)
    if needs:
        lines += ["", "needs", *(f"  {need}" for need in needs)]
    if source is not None and source.note:
        lines += ["", "note", f"  {source.note}"]
    if source is not None and source.unverified:
        lines += ["", "not verified", *(f"  {doubt}" for doubt in source.unverified)]
    return "\n".join(lines)


_STATUS = {
    "code": "the method's public code",
    "text": "the paper's or its documentation's own text",
    "secondary": "descriptions by others; the paper itself could not be read",
}


def formula(objective: Objective) -> list[str]:
    """The loss, one line a term."""
    if isinstance(objective.surrogate, parts.Regression):
        lines = [f"L = 1/N sum_i {written(objective.surrogate)}"]
    else:
        factors = [factor for factor, used in (("keep", _keep(objective)), ("c", objective.correction)) if used]
        maximised = f"[ {written(objective.surrogate)} ]" if objective.ratio.acts else "lp A"
        inner = " * ".join([*factors, f"-{maximised}"])
        lines = [f"L = {_AGGREGATIONS[objective.aggregation]} {inner}"]
    if isinstance(objective.kl, parts.KlLoss):
        lines.append(f"  + {written(objective.kl)}")
    if objective.entropy is not None:
        lines.append(f"  - {written(objective.entropy)}")
    if objective.teacher is not None:
        lines.append(f"  + {written(objective.teacher)}")
    if objective.adapter_decay:
        lines.append(f"  + {objective.adapter_decay:g} * |adapter|^2, applied by the trainer")
    if isinstance(objective.advantage, parts.Advised):
        coefficient = objective.advantage.value_coefficient
        lines.append(f"  + {coefficient:g} * (V - target)^2 / 2, averaged like the loss   (critic)")
    return lines


def written(part: object) -> str:
    """The first paragraph of a part's description, with its numbers in the place of `names`; what follows a semicolon is left
    out where it names what is off."""
    text = " ".join(str(inspect.getdoc(type(part))).split("\n\n")[0].split()).removesuffix(".")
    values = {field.name: getattr(part, field.name) for field in fields(cast(Any, part))}
    off = [name for name, value in values.items() if value is None or value is False]
    clauses = [part for part in text.split("; ") if not any(f"`{name}`" in part for name in off)]
    return re.sub(r"`(\w+)`", lambda found: _shown(found[1], values[found[1]]), "; ".join(clauses))


def _shown(name: str, value: object) -> str:
    if isinstance(value, parts.Scale):
        return written(value)
    return name if value is True else f"{value:g}" if isinstance(value, int | float) else str(value)


def symbols(objective: Objective) -> list[tuple[str, str]]:
    """What each letter of the formula stands for."""
    clamp = objective.advantage_clamp
    advantage = written(objective.advantage) + ("" if clamp is None else f"; clamped to +-{clamp:g}")
    if objective.weight is not None:
        advantage += f"; {written(objective.weight)}"
    found = [("A", advantage), ("R", _reward(objective))]
    if objective.ratio.acts:
        found.append(("r", written(objective.ratio)))
    if objective.ratio.acts or objective.correction:
        found.append(("anchor", _ANCHORS[objective.ratio.anchor]))
    found += [("c", written(each)) for each in objective.correction]
    if objective.correction:
        found.append(("rho", "exp(anchor - lp_behaviour), detached"))
    found += [("keep", each) for each in _keep(objective)]
    unit = (
        "episodes (all rows of one together)" if objective.aggregation_unit == "episode" else "rows, one a model call"
    )
    counted = "drawn" if objective.denominator == "original" else "kept"
    found.append(("i, t", f"{unit}; tokens the policy drew. N and T_i count {counted} ones over the whole step"))
    if objective.local_weight is not None:
        found.append(
            (
                "",
                f"whole rollouts and re-rolls are averaged apart; L = rollouts + {objective.local_weight:g} * re-rolls",
            )
        )
    return found


def _reward(objective: Objective) -> str:
    found = ["the episode's combined reward"]
    if isinstance(objective.overlong, parts.OverlongPenalty):
        found.append(written(objective.overlong))
    if isinstance(objective.kl, parts.KlReward):
        found.append(written(objective.kl))
    return "; ".join(found)


def _keep(objective: Objective) -> list[str]:
    found = [written(each) for each in (objective.selection, objective.negatives) if each is not None]
    if objective.shares_nodes:
        found.append("tokens at which the group's answers part, 1/n of one that n of them share")
    if isinstance(objective.overlong, parts.OverlongMask):
        found.append(written(objective.overlong))
    if objective.max_lag is not None:
        found.append(f"tokens drawn at most {objective.max_lag} versions ago")
    return found


def controls(objective: Objective) -> list[str]:
    """What changes between updates, and when."""
    rules = [
        written(each) for each in (objective.reset, objective.step_control, objective.group_filter) if each is not None
    ]
    if objective.teacher is not None and objective.teacher.anneal is not None:
        rules.append(f"the teacher's coefficient is {written(objective.teacher.anneal)}")
    return rules
