"""Explain: an objective in words and formulas, written from its fields, so that it cannot disagree with what runs.

Free of torch.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from typing import Any, cast

from keepworth.episodes.errors import UnknownName
from keepworth.learning.objective import parts
from keepworth.learning.objective.options import Objective
from keepworth.learning.objective.presets import PRESETS
from keepworth.learning.objective.sources import SOURCES, Source

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
    if name not in PRESETS:
        raise UnknownName("objective", name, PRESETS)
    return described(PRESETS[name], SOURCES.get(name))


def described(objective: Objective, source: Source | None = None) -> str:
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
    needs = requirements(objective)
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
        beta = objective.surrogate.coefficient
        lines = [f"L = 1/N sum_i ( {beta:g} * sum_t (lp - lp_reference) - A )^2"]
    else:
        factors = [factor for factor, used in (("keep", _masks(objective)), ("c", _corrects(objective))) if used]
        inner = " * ".join([*factors, f"-{_surrogate(objective)}"])
        lines = [f"L = {_AGGREGATIONS[objective.aggregation]} {inner}"]
    if isinstance(objective.kl, parts.KlLoss):
        lines.append(f"  + {written(objective.kl)}")
    if objective.entropy is not None:
        lines.append(f"  - {written(objective.entropy)}")
    if objective.teacher is not None:
        lines.append(f"  + {written(objective.teacher)}")
    if objective.adapter_decay:
        lines.append(f"  + {objective.adapter_decay:g} * |adapter|^2, applied by the trainer")
    if objective.value_coefficient:
        clipped = (
            "" if objective.value_clip is None else f", V clipped to within {objective.value_clip:g} of its old value"
        )
        lines.append(f"  + {objective.value_coefficient:g} * (same average of) (V - target)^2 / 2{clipped}   (critic)")
    return lines


def written(part: object) -> str:
    """The first paragraph of a part's description, with its numbers in the place of `names`."""
    text = " ".join(str(inspect.getdoc(type(part))).split("\n\n")[0].split()).removesuffix(".")
    text = text[:1].lower() + text[1:]
    values = {each.name: getattr(part, each.name) for each in fields(cast(Any, part))}
    return re.sub(r"`(\w+)`", lambda found: _shown(values[found[1]]), text)


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _masks(objective: Objective) -> bool:
    return _keep(objective) != "1"


def _corrects(objective: Objective) -> bool:
    return any(isinstance(each, parts.WEIGHING) for each in objective.correction)


def _surrogate(objective: Objective) -> str:
    chosen = objective.surrogate
    if isinstance(chosen, parts.SoftGate):
        return "(4/tau) sigmoid(tau (r - 1)) A"
    if not isinstance(chosen, parts.Clip | parts.DualClip | parts.Cispo):
        return "lp A" if objective.ratio == "none" else "r A"
    clipped = f"clip(r, {max(0.0, 1 - chosen.low):g}, {1 + chosen.high:g})"
    if isinstance(chosen, parts.Cispo):
        return f"sg[{clipped}] A lp"
    if isinstance(chosen, parts.DualClip):
        return f"[ min(r A, {clipped} A), where A < 0 at least {chosen.bound} A ]"
    return f"min(r A, {clipped} A)"


def symbols(objective: Objective) -> list[tuple[str, str]]:
    """What each letter of the formula stands for."""
    found = [("A", _advantage(objective)), ("R", _reward(objective))]
    if objective.ratio != "none":
        levels = {
            "token": "exp(lp - anchor), token by token",
            "sequence": f"exp(mean over the {objective.ratio_unit} of lp - anchor), the same on each of its tokens",
            "sequence_product": f"exp(sum over the {objective.ratio_unit} of lp - anchor)",
            "sequence_token": f"value of exp(mean over the {objective.ratio_unit}), gradient of the token alone",
        }
        found += [("r", levels[objective.ratio]), ("anchor", _ANCHORS[objective.anchor])]
    if _corrects(objective):
        found.append(("c", _correction(objective) + ", detached; rho = exp(anchor - lp_behaviour)"))
        if objective.ratio == "none":
            found.append(("anchor", _ANCHORS[objective.anchor]))
    if _masks(objective):
        found.append(("keep", _keep(objective)))
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


def _advantage(objective: Objective) -> str:
    centers = {
        "none": "R",
        "group": "R - mean_group R",
        "leave_one_out": "R - mean of the others of the group",
        "batch": "R - mean_batch R",
        "optimal": "R - b*, b* the mean of R weighted by w^2 |grad log pi(episode)|^2",
    }
    base = centers[objective.center]
    if objective.credit == "reward_to_go":
        base = f"sum over the following tokens of {objective.discount:g}^n r, r = {base} on the last token"
    elif objective.credit == "gae":
        base = f"GAE(discount {objective.discount:g}, trace {objective.trace_decay:g}) of the critic"
        if objective.bootstrap == "truncated":
            base += ", whose value stands behind an answer cut off by the length limit"
    elif objective.credit in ("step_state", "step_index"):
        return _step_advantage(objective, base)
    elif objective.credit == "prefix_tree":
        base = "mean R of the group's answers that begin with (prefix, token) - mean R of those that begin with prefix"
    elif objective.credit == "soft_value":
        tau = f"{objective.soft_value_temperature:g}"
        base = f"R - V*, V* = {tau} log mean exp(R / {tau}) over samples of the reference"
    if objective.scale in ("group", "batch", "task"):
        base = f"({base}) / (std_{objective.scale} R + {objective.scale_epsilon:g})"
    if objective.scale == "token":
        base = f"[{base}], whitened over all drawn tokens of the step"
    if objective.advantage_clamp is not None:
        base += f", clamped to +-{objective.advantage_clamp:g}"
    return base


def _step_advantage(objective: Objective, episode: str) -> str:
    same = "environment state" if objective.credit == "step_state" else "turn index"
    step = "U - mean U"
    if objective.scale == "group":
        episode, step = f"({episode}) / (std_group R + {objective.scale_epsilon:g})", f"({step}) / std U"
    weighted = ((objective.episode_weight, episode), (objective.step_weight, step))
    parts = [f"{weight:g} * [{part}]" for weight, part in weighted if weight]
    returns = "the turn's own reward"
    if objective.discount:
        returns = f"sum of {objective.discount:g}^n times the rewards of the turn and those after it"
    return f"{' + '.join(parts)}, U compared over turns of the group with the same {same}; U = {returns}"


def _reward(objective: Objective) -> str:
    found = ["the episode's combined reward"]
    if objective.overlong == "penalty":
        found.append(f"- 0 to 1 over the last {objective.overlong_buffer:.0%} of length_budget tokens")
    if isinstance(objective.kl, parts.KlReward):
        found.append(written(objective.kl))
    return "; ".join(found)


def _correction(objective: Objective) -> str:
    (chosen,) = (each for each in objective.correction if isinstance(each, parts.WEIGHING))
    if isinstance(chosen, parts.Truncate):
        return f"clip(rho, {chosen.low:g}, {chosen.high:g})"
    if isinstance(chosen, parts.Mask):
        return "rho"
    if isinstance(chosen, parts.SequenceTruncate):
        return f"min(product of rho over the {chosen.unit}, {chosen.high:g})"
    return f"product of rho over the {chosen.unit}"


def _kept_where(chosen: parts.Correction) -> str:
    """What a correction keeps; "" where it only weighs."""
    if isinstance(chosen, parts.Mask):
        return f"{chosen.low:g} <= rho <= {chosen.high}"
    if isinstance(chosen, parts.SequenceMask):
        return f"{chosen.low:g} <= product of rho over the {chosen.unit} <= {chosen.high}"
    if isinstance(chosen, parts.GeometricMask):
        return f"{chosen.low:g} <= geometric mean of rho over the {chosen.unit} <= {chosen.high}"
    if isinstance(chosen, parts.K2Mask):
        return f"mean log(rho)^2/2 over the {chosen.unit} <= {chosen.high}"
    if isinstance(chosen, parts.K3Mask):
        return f"mean (rho - log rho - 1) over the {chosen.unit} <= {chosen.high}"
    return f"no rho of the {chosen.unit} below {chosen.below:g}" if isinstance(chosen, parts.Veto) else ""


def _keep(objective: Objective) -> str:
    found = [said for each in objective.correction if (said := _kept_where(each))]
    if objective.selection == "first_and_random":
        limit = "" if objective.selection_limit is None else f", at most {objective.selection_limit}"
        first, share = objective.selection_first, objective.selection_probability
        found.append(f"among the first {first} tokens of a row, later ones with probability {share:g}{limit}")
    if objective.selection == "top_entropy":
        found.append(f"among the {objective.selection_probability:.0%} of the step's tokens with the highest entropy")
    if objective.selection == "tree_nodes":
        found.append("the group's answers part at the token, and 1/n of that where n of them share it")
    if objective.overlong == "mask":
        found.append("not cut off by the length limit")
    if objective.max_lag is not None:
        found.append(f"drawn at most {objective.max_lag} versions ago")
    if objective.negatives == "entropy_gate":
        found.append("A >= 0 while the entropy gate is closed")
    if not found:
        return "1"
    return "1 where " + ", and ".join(found)


def controls(objective: Objective) -> list[str]:
    """What changes between updates, and when."""
    rules = []
    if objective.negatives == "entropy_gate":
        low, high = objective.gate_low, objective.gate_high
        rules.append(f"the gate closes when the batch entropy rises above {high} and opens when it falls below {low}")
    if objective.teacher is not None and objective.teacher.anneal is not None:
        rules.append(f"the teacher's coefficient is {written(objective.teacher.anneal)}")
    if objective.reset is not None:
        rules.append(written(objective.reset))
    if objective.step_control == "ess":
        base, power = objective.ess_base, objective.ess_power
        rules.append(f"learning rate * min(1, ESS / {base:g})^{power:g}, ESS the effective share of sequence weights")
    if objective.group_filter == "mixed":
        rules.append("groups whose scores are all equal are rejected, and logged")
    if objective.group_filter == "spread":
        rules.append(f"groups whose scores have a standard deviation of {objective.filter_spread} or less are rejected")
    return rules


def requirements(objective: Objective) -> list[str]:
    """What the run must provide beyond rewards and the sampler's log-probabilities."""
    wanted = (
        (objective.needs_proximal, "Batch.lp_proximal"),
        (objective.needs_reference, "Batch.lp_reference"),
        (objective.anchor == "interpolated" or objective.max_lag is not None, "Batch.version_lag"),
        (objective.needs_entropy, "the entropy of every token, with gradient"),
        (
            objective.needs_length_budget and objective.length_budget is None,
            "length_budget, the run's generation limit",
        ),
        (objective.needs_selection, "select(...) before the loss"),
        (objective.reward_term is not None, f"a reward term {objective.reward_term!r} in every episode"),
    )
    return [need for condition, need in wanted if condition]


def listing() -> list[tuple[str, str, str, str, str, str, str, str]]:
    """One line a preset: name, credit, centre / scale, ratio and anchor, surrogate, correction, aggregation, KL."""
    lines = []
    for name, objective in PRESETS.items():
        ratio = objective.ratio if objective.ratio == "none" else f"{objective.ratio}, {objective.anchor}"
        surrogate = repr(objective.surrogate).removesuffix("()")
        correction = " and ".join(map(repr, objective.correction)) or "none"
        lines.append(
            (
                name,
                str(objective.credit),
                f"{objective.center} / {objective.scale}",
                ratio,
                surrogate,
                correction,
                str(objective.aggregation),
                str(objective.kl or "none"),
            )
        )
    return lines
