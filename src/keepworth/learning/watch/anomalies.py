"""What goes wrong in a training run, seen in its metrics, said in words, with what to try.

Every detector looks at the last rows of one role and says what it sees, or nothing. It needs several steps to speak, and
compares with the run's own beginning where what is usual depends on the task: entropy may rise for good reasons (UI-TARS-2,
arXiv 2509.02544), answers may grow because they get better. Thresholds are named constants, with the reason beside them; they
were set by the meaning of the quantity, not fitted to runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]
Rows = Sequence[Row]

WINDOW = 5
"""Steps that are averaged before anything is said: one step of a few groups is mostly luck."""
LONG_WINDOW = 10
"""For rewards and for groups without a signal, which vary more from step to step than what is averaged over tokens."""

NO_SIGNAL = 0.75
"""Share of groups whose rewards are all equal. Three of four tasks sampled for nothing: the step has a quarter of the
gradient that it paid for (dynamic sampling exists for this: DAPO, arXiv 2503.14476, section 3.2)."""
LOW_ESS = 0.5
"""Effective sample size as a share of the sampled episodes. Below a half, the importance weights have thrown away more than
they kept; its fall comes before that of the reward (Stable Asynchrony, arXiv 2602.17616)."""
ENTROPY_LEFT = 0.2
ENTROPY_LOW = 0.1
"""Collapse: below a fifth of the entropy at the start and below 0.1 nats a token. At 0.1 nats about one token in fifty is not
the likeliest one, and a group of eight short answers is most often eight times the same."""
LENGTH_GROWTH = 3.0
TRUNCATED = 0.5
"""Explosion: three times the tokens of the start, or half of the answers cut off at the limit that were not at the start. A
cut-off answer is scored for where it was cut."""
MISMATCH = 0.05
"""Mean gap in nats between the log-probabilities that sampler and learner give the same token under the same weights. bfloat16
arithmetic alone gives about 0.02; past 0.05 a ratio of 1 is measured as 1.05, a quarter of a usual clip range of 0.2."""
GRADIENT_GROWTH = 10.0
"""Gradient norms against their median so far: past a factor of ten, single steps undo what many have learned."""
REWARD_LOST = 0.5
REWARD_ERRORS = 4.0
"""A fall of the reward by half of what was the best, and by at least four standard errors of the difference."""
INVALID = 0.2
INVALID_ROSE = 0.1
"""A fifth of the operations unreadable, and a tenth more than at the start: each one is a decision without an effect."""
DIED = 0.1
"""Share of episodes ended by their environment, by a timeout or by being aborted: they say nothing about the policy, and
which tasks they come from is seldom chance."""

LOOKS = 300
"""A longer run is looked at every so many steps that it is about this often."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """`name` in two or three words; `message`: what was seen, with numbers, at `last`; `tries`: what to change, best first.

    It held from step `first` to step `last`; `now`: it holds at the latest step of its role."""

    name: str
    message: str
    tries: tuple[str, ...]
    role: str
    first: int
    last: int
    now: bool


@dataclass(frozen=True, slots=True)
class Detector:
    """`look` is given the rows of one role up to a step and answers with what it sees ("" for nothing)."""

    name: str
    look: Callable[[Rows], str]
    tries: tuple[str, ...]


def anomalies(rows: Iterable[Row]) -> list[Anomaly]:
    """Every anomaly of a run, those that hold now first, then by step. One that came back is one, from its first step on."""
    by_role: dict[str, list[Row]] = {}
    for row in rows:
        by_role.setdefault(str(row.get("role") or ""), []).append(row)
    found = [each for role, own in by_role.items() for each in _of_role(role, own)]
    return sorted(found, key=lambda each: (not each.now, each.first))


def present(rows: Rows) -> list[Anomaly]:
    """Those that hold at the last of `rows`, which are of one role: what a display shows while the run goes on."""
    if not rows:
        return []
    step = int(rows[-1].get("step", len(rows)))
    role = str(rows[-1].get("role") or "")
    return [
        Anomaly(each.name, said, each.tries, role, step, step, True) for each in DETECTORS if (said := each.look(rows))
    ]


def _of_role(role: str, rows: Rows) -> list[Anomaly]:
    held: dict[str, list[tuple[int, str]]] = {}
    stride = max(1, len(rows) // LOOKS)
    for count in sorted({*range(stride, len(rows) + 1, stride), len(rows)}):
        for each in present(rows[:count]):
            held.setdefault(each.name, []).append((int(rows[count - 1]["step"]), each.message))
    last = int(rows[-1]["step"])
    tries = {each.name: each.tries for each in DETECTORS}
    return [
        Anomaly(name, seen[-1][1], tries[name], role, seen[0][0], seen[-1][0], seen[-1][0] == last)
        for name, seen in held.items()
    ]


def all_wrong(rows: Rows) -> str:
    share, equal = _recent(rows, "all_wrong_groups", LONG_WINDOW), _recent(rows, "zero_variance_groups", LONG_WINDOW)
    if share is None or equal is None or equal < NO_SIGNAL or share < 0.5 * equal:
        return ""
    return f"{_percent(equal)} of the groups of the last {LONG_WINDOW} steps have equal rewards, most of them no reward at all"


def all_alike(rows: Rows) -> str:
    equal = _recent(rows, "zero_variance_groups", LONG_WINDOW)
    if equal is None or equal < NO_SIGNAL or all_wrong(rows):
        return ""
    reward = _recent(rows, "reward", LONG_WINDOW)
    mean = "" if reward is None else f", at a mean reward of {reward:.2f}"
    return f"{_percent(equal)} of the groups of the last {LONG_WINDOW} steps have equal rewards{mean}"


def collapsing_ess(rows: Rows) -> str:
    ess = _recent(rows, "ess")
    if ess is None or ess >= LOW_ESS:
        return ""
    lag = _recent(rows, "lag_mean")
    stale = f"; the tokens are {lag:.1f} versions old on average" if lag else ""
    return f"the importance weights leave {_percent(ess)} of the sample effective{stale}"


def entropy_collapse(rows: Rows) -> str:
    now, before = _recent(rows, "entropy"), _start(rows, "entropy")
    if now is None or before is None or now >= ENTROPY_LOW or now >= ENTROPY_LEFT * before:
        return ""
    return f"entropy fell from {before:.2f} to {now:.3f} nats a token: nearly every answer is drawn the same way"


def length_explosion(rows: Rows) -> str:
    now, before = _recent(rows, "response_length"), _start(rows, "response_length")
    cut, cut_before = _recent(rows, "stop/max_tokens"), _start(rows, "stop/max_tokens")
    if now is None or before is None:
        return ""
    grew = before > 0 and now > LENGTH_GROWTH * before
    truncated = cut is not None and cut_before is not None and cut >= TRUNCATED > 2 * cut_before
    if not grew and not truncated:
        return ""
    said = [f"answers have {now:.0f} tokens, {before:.0f} at the start"]
    if cut:
        said.append(f"{_percent(cut)} are cut off at the limit")
    right, wrong = _recent(rows, "response_length/right"), _recent(rows, "response_length/wrong")
    if right is not None and wrong is not None and wrong > 1.5 * right:
        said.append(f"wrong ones are longer ({wrong:.0f}) than right ones ({right:.0f})")
    return "; ".join(said)


def sampler_learner_gap(rows: Rows) -> str:
    gap = _recent(rows, "mismatch_mean")
    if gap is None or gap <= MISMATCH or _recent(rows, "lag_mean"):
        return ""  # with stale tokens the gap is what was learned since, which the effective sample size watches
    return f"sampler and learner differ by {gap:.3f} nats a token under the same weights"


def not_finite(rows: Rows) -> str:
    names = [name for name, value in rows[-1].items() if isinstance(value, float) and not math.isfinite(value)]
    return f"not a finite number at step {rows[-1].get('step', len(rows))}: {', '.join(names[:4])}" if names else ""


def gradient_spikes(rows: Rows) -> str:
    norms = _values(rows, "gradient_norm")
    if len(norms) < 2 * WINDOW:
        return ""
    usual = sorted(norms[:-WINDOW])[len(norms[:-WINDOW]) // 2]
    high = [norm for norm in norms[-WINDOW:] if norm > GRADIENT_GROWTH * usual]
    # Gradients vanish where groups agree; the first one after that is no spike.
    if usual < 1e-3 or len(high) < 2:
        return ""
    return (
        f"{len(high)} of the last {WINDOW} gradient norms are more than {GRADIENT_GROWTH:g} times the usual {usual:.3g}"
    )


def reward_fell(rows: Rows) -> str:
    rewards = _values(rows, "reward")
    if len(rewards) < 2 * LONG_WINDOW:
        return ""
    now = rewards[-LONG_WINDOW:]
    earlier = [rewards[i : i + LONG_WINDOW] for i in range(len(rewards) - 2 * LONG_WINDOW + 1)]
    best = max(earlier, key=_mean)
    lost = _mean(best) - _mean(now)
    error = math.sqrt((_variance(best) + _variance(now)) / LONG_WINDOW)
    if _mean(best) <= 0 or lost < REWARD_LOST * _mean(best) or lost < REWARD_ERRORS * error:
        return ""
    return f"the mean reward fell from {_mean(best):.2f} to {_mean(now):.2f}"


def invalid_operations(rows: Rows) -> str:
    now, before = _recent(rows, "invalid_operations"), _start(rows, "invalid_operations")
    if now is None or before is None or now < INVALID or now < before + INVALID_ROSE:
        return ""
    return f"{_percent(now)} of the operations cannot be read, {_percent(before)} at the start"


def dying_episodes(rows: Rows) -> str:
    shares = {name: _recent_or_zero(rows, f"stop/{name}") for name in ("environment_error", "timeout", "aborted")}
    if sum(shares.values()) < DIED:
        return ""
    kinds = ", ".join(f"{_percent(share)} {name.replace('_', ' ')}" for name, share in shares.items() if share)
    return f"{_percent(sum(shares.values()))} of the episodes did not come to an end of their own ({kinds})"


DETECTORS = (
    Detector(
        "diverged",
        not_finite,
        (
            "lower learning_rate and continue from the last checkpoint",
            "check the reward for values that are not finite",
        ),
    ),
    Detector(
        "reward collapse",
        reward_fell,
        (
            "lower learning_rate, or go back: the checkpoints keep the last two",
            "read the episodes with the lowest reward: keepworth show RUN --episodes --worst",
        ),
    ),
    Detector(
        "gradient spikes",
        gradient_spikes,
        ("lower learning_rate", "more groups a step (tasks_per_step)", "look at the episodes of these steps"),
    ),
    Detector(
        "zero-signal groups: all wrong",
        all_wrong,
        (
            "easier tasks first, or a supervised warm start",
            "a reward that gives part of the credit (token F1 instead of exact match)",
            "a larger group_size: one right answer is enough for a signal",
        ),
    ),
    Detector(
        "zero-signal groups",
        all_alike,
        (
            "stop here if the held-out curve is flat: these tasks are learned",
            "harder tasks, or a filter that draws other tasks in their place (refill)",
            "a larger group_size",
        ),
    ),
    Detector(
        "collapsing sample size",
        collapsing_ess,
        (
            "lower max_staleness, or learning_rate",
            "an objective that expects lag: decoupled clipping, truncated weights (keepworth objectives)",
        ),
    ),
    Detector(
        "entropy collapse",
        entropy_collapse,
        (
            "harmless where the held-out curve still rises",
            "an entropy bonus (entropy), or a wider upper clip",
            "a lower learning_rate; fewer passes of a warm start",
        ),
    ),
    Detector(
        "length explosion",
        length_explosion,
        (
            "average the loss over tokens, not over answers (aggregation token-mean)",
            "leave cut-off answers out of the loss, or take a little reward for length",
            "raise max_tokens if the long answers are good ones",
        ),
    ),
    Detector(
        "sampler and learner disagree",
        sampler_learner_gap,
        (
            "the same temperature, adapter and weights on both sides: check what was published",
            "precision = fp32, to see whether arithmetic is the cause",
            "truncated importance weights as the correction",
        ),
    ),
    Detector(
        "invalid operations rising",
        invalid_operations,
        (
            "a format reward, or a longer warm start",
            "a lower learning_rate",
            "read some: keepworth show RUN --episodes --worst",
        ),
    ),
    Detector(
        "episodes die",
        dying_episodes,
        (
            "read their errors: keepworth show RUN --episodes",
            "longer timeouts, if the environment is slow and not broken",
        ),
    ),
)


def _values(rows: Rows, name: str) -> list[float]:
    found = (row.get(name) for row in rows)
    return [float(value) for value in found if isinstance(value, int | float) and math.isfinite(value)]


def _recent(rows: Rows, name: str, window: int = WINDOW) -> float | None:
    """Mean over the last `window` rows; None before there are as many with a value."""
    values = _values(rows[-window:], name)
    return _mean(values) if len(values) == window else None


def _recent_or_zero(rows: Rows, name: str) -> float:
    """The same for what is written only where it occurred."""
    if len(rows) < WINDOW:
        return 0.0
    return sum(_values(rows[-WINDOW:], name)) / WINDOW


def _start(rows: Rows, name: str) -> float | None:
    """Mean over the first rows; None before there are as many again after them."""
    values = _values(rows[:WINDOW], name)
    return _mean(values) if len(values) == WINDOW and len(rows) >= 2 * WINDOW else None


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _variance(values: Sequence[float]) -> float:
    mean = _mean(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
