"""How many seeds a question needs, said before anything runs.

A plan starts from the spread of a paired difference over what is resampled (seeds, houses, conversations): of a pilot, or
declared. Everything is by Student's t. Effects are tested at Holm's worst case: the first of `comparisons` at ALPHA over all.
Half-widths are those of a plain 95 % interval: a claim that holds against every rival needs no correction (`against_each`).
Numbers are scores in [0, 1]; text is in points, hundredths of them.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from keepworth.episodes.errors import KeepworthError
from keepworth.episodes.extras import require
from keepworth.evaluation.statistics import ALPHA, LEAST, TooFewSeeds

POWER = 0.8
"""The chance of finding an effect of the planned size; and the chance that an interval is as narrow as planned."""
DECLARED = 0.06
"""A spread where there is no pilot: 9 in 10 comparisons of `benchmarks/streams/results/one-step.json` (300 tasks) stay below."""
MOST = 1_000_000
"""Seeds, beyond which a question counts as one that cannot be answered."""


@dataclass(frozen=True, slots=True)
class PairedSpread:
    """The standard deviation of a paired difference over seeds. n: of how many it was estimated, 0 where it is declared; source:
    where it comes from, for people; unit: what is counted, where it is not seeds."""

    sd: float
    n: int = 0
    source: str = "declared"
    unit: str = "seeds"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.sd) and self.sd > 0.0):
            raise KeepworthError(
                f"a spread of {self.sd} ({self.source}) plans nothing: it must be above 0.",
                "Give a pilot of at least 3 seeds whose differences vary, or declare a spread.",
            )

    @property
    def at_most(self) -> float:
        """The upper end of a one-sided 80 % interval of the spread (chi-squared); the spread itself where it is declared."""
        if self.n < 2:
            return self.sd
        return self.sd * math.sqrt((self.n - 1) / _chi2(1.0 - POWER, self.n - 1))


def spread(named: Mapping[str, Sequence[float]]) -> PairedSpread:
    """The widest spread among the comparisons of a pilot, so that the plan is enough for each of them.

    named: paired differences, one per seed, by comparison. TooFewSeeds where none has 3; KeepworthError where none varies."""
    if not named:
        raise KeepworthError("the pilot holds no comparison.", "Run the arms that will be compared, with a few seeds.")
    most = max(len(values) for values in named.values())
    if most < LEAST:
        raise TooFewSeeds("A pilot", most, LEAST)
    widest = max(
        (name for name, values in named.items() if len(values) >= LEAST),
        key=lambda name: float(np.std(named[name], ddof=1)),
    )
    values = named[widest]
    return PairedSpread(float(np.std(values, ddof=1)), len(values), f"pilot, {len(values)} seeds, widest at {widest}")


def over_questions(questions: int, clusters: int, discordance: float = 0.25, alike: float = 0.05) -> PairedSpread:
    """The declared spread, over clusters of questions, of the difference between two systems whose answers are right or wrong.

    discordance: the share of questions that one of them alone answers; alike: the correlation of two differences in one
    cluster. With one question a cluster the half-width is about 1.96 sqrt(discordance / n)."""
    size = questions / clusters
    sd = math.sqrt(discordance * (1.0 / size + alike * (1.0 - 1.0 / size)))
    return PairedSpread(
        sd, source=f"declared: one in {1 / discordance:.0f} questions is answered by one alone", unit="clusters"
    )


def fewest(comparisons: int) -> int:
    """The fewest seeds with which a sign-flip test can hold in a family of so many comparisons: 2^(1 - n) < ALPHA / m."""
    return max(LEAST, math.floor(1 + math.log2(max(1, comparisons) / ALPHA)) + 1)


def half_width(sd: float, n: int, level: float = 1.0 - ALPHA) -> float:
    """Of the t interval of a mean over `n` seeds, where their spread is `sd`."""
    require("eval", "A plan of seeds", "scipy")
    from scipy.stats import t

    return float(t.ppf(0.5 + level / 2.0, n - 1)) * sd / math.sqrt(n)


def detectable(sd: float, n: int, comparisons: int = 1, power: float = POWER) -> float:
    """The minimum detectable effect: the difference that a two-sided t test over `n` seeds finds with the chance `power`."""
    require("eval", "A plan of seeds", "statsmodels")
    from statsmodels.stats.power import TTestPower

    alone: float = TTestPower().solve_power(nobs=n, alpha=ALPHA / comparisons, power=power)
    return sd * alone


def seeds_for_half_width(sd: float, wanted: float, assurance: float = POWER) -> int:
    """So many seeds that the interval is no wider than +-`wanted` in a share `assurance` of runs.

    Kupper and Hafner, "How appropriate are popular sample size formulas?", The American Statistician 43, 1989: the width of an
    interval is random, and planning for its mean is too narrow half of the time."""
    found = 2 + bisect_left(
        range(2, MOST),
        True,
        key=lambda n: half_width(sd * math.sqrt(_chi2(assurance, n - 1) / (n - 1)), n) <= wanted,
    )
    if found >= MOST:
        raise KeepworthError(
            f"a half-width of {_points(wanted)} with a spread of {_points(sd)} takes more than {MOST} seeds.",
            "Ask for less, or make each seed longer: its spread falls.",
        )
    return found


@dataclass(frozen=True, slots=True)
class SeedPlan:
    """What a run of `have` seeds can say, before it runs.

    wanted: the half-width that was asked for, None where none was. need: seeds for it, and no fewer than `floor`, below which no
    verdict is possible in a family of `comparisons`. expected: the half-width to expect of `have` seeds, for one comparison by
    itself; detectable: the difference that they find four times in five, in the family."""

    spread: PairedSpread
    comparisons: int
    have: int
    need: int
    floor: int
    expected: float
    detectable: float
    wanted: float | None = None

    @property
    def enough(self) -> bool:
        return self.have >= self.need

    @property
    def text(self) -> str:
        """For people, printed before a run and kept with its plan."""
        unit = self.spread.unit
        together = "one comparison" if self.comparisons == 1 else f"{self.comparisons} comparisons corrected together"
        lines = [
            f"Spread of a paired difference over {unit}: {_points(self.spread.sd)} points ({self.spread.source}).",
            f"{self.have} {unit}: expect +-{_points(self.expected)} points. Of {together}, a difference of "
            f"{_points(self.detectable)} points is found four times in five.",
        ]
        if self.wanted is not None:
            short = "" if self.enough else f": {self.need - self.have} more than there are"
            lines.append(f"For +-{_points(self.wanted)} points, {self.need} {unit} are needed{short}.")
        if self.have < self.floor:
            lines.append(f"No verdict is possible: {together} need at least {self.floor} {unit}.")
        return "\n".join(lines)

    def record(self) -> dict[str, object]:
        """For the plan that a run keeps."""
        return {
            "sd": self.spread.sd,
            "sd_of": self.spread.n,
            "sd_source": self.spread.source,
            **{name: getattr(self, name) for name in SeedPlan.__slots__ if name != "spread"},
        }


def plan(spread: PairedSpread, have: int, *, wanted: float | None = None, comparisons: int = 1) -> SeedPlan:
    """What `have` seeds can say and how many are needed. wanted: half-width of an interval.

    A pilot's spread is itself uncertain: the plan takes the upper end of it (`PairedSpread.at_most`), so that it is not too small
    four times in five. KeepworthError for a half-width that is not above 0."""
    if wanted is not None and not (math.isfinite(wanted) and wanted > 0.0):
        raise KeepworthError(f"a half-width of {wanted} cannot be planned for.", "Give a number above 0, in [0, 1].")
    floor = fewest(comparisons)
    if comparisons < 1 or have < 2:
        raise TooFewSeeds("A plan", have, max(2, floor))
    need = floor if wanted is None else max(floor, seeds_for_half_width(spread.at_most, wanted))
    expected, found = half_width(spread.sd, have), detectable(spread.sd, have, comparisons)
    return SeedPlan(spread, comparisons, have, need, floor, expected, found, wanted)


def require_enough(planned: SeedPlan) -> None:
    """Raises TooFewSeeds, before anything runs, where there are fewer seeds than what was asked for takes."""
    if planned.enough:
        return
    asked = "A verdict" if planned.comparisons == 1 else f"A verdict on {planned.comparisons} comparisons"
    if planned.wanted is not None:
        asked = f"An interval of +-{_points(planned.wanted)} points"
    raise TooFewSeeds(asked, planned.have, planned.need)


def _points(value: float) -> str:
    return f"{100.0 * value:.1f}" if abs(value) >= 0.0095 else f"{100.0 * value:.2g}"


def _chi2(level: float, degrees: int) -> float:
    require("eval", "A plan of seeds", "scipy")
    from scipy.stats import chi2

    return float(chi2.ppf(level, degrees))
