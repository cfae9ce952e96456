"""The statistical power of a number of seeds, computed before anything runs.

A plan starts from the declared standard deviation of a paired difference over the resampled units (seeds, houses, conversations).
All formulas use Student's t. Effects are tested at Holm's worst case: the first of `comparisons` at ALPHA over all. Numbers are
scores in [0, 1]; texts use points, hundredths of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from keepworth.base.extras import require
from keepworth.base.statistics import ALPHA, LEAST, TooFewSeeds

POWER = 0.8
"""The probability of finding an effect of the planned size."""
DECLARED = 0.06
"""The standard deviation declared for streams: with 300 tasks, 9 in 10 comparisons have a lower one."""


def over_questions(questions: int, clusters: int) -> float:
    """Returns the declared standard deviation, over clusters of questions, of the difference between two systems with right or
    wrong answers.

    It assumes that one system alone answers a quarter of the questions, and that two differences in one cluster have a
    correlation of 0.05."""
    size = questions / clusters
    return math.sqrt(0.25 * (1.0 / size + 0.05 * (1.0 - 1.0 / size)))


def fewest(comparisons: int) -> int:
    """Returns the fewest seeds with which a sign-flip test can be significant in a family of `comparisons`: 2^(1 - n) < ALPHA /
    m."""
    return max(LEAST, math.floor(1 + math.log2(max(1, comparisons) / ALPHA)) + 1)


def half_width(sd: float, n: int) -> float:
    """Returns the half-width of the 95 % t interval of a mean over `n` seeds with standard deviation `sd`."""
    require("eval", "A plan of seeds", "scipy")
    from scipy.stats import t

    return float(t.ppf(1.0 - ALPHA / 2.0, n - 1)) * sd / math.sqrt(n)


def detectable(sd: float, n: int, comparisons: int = 1) -> float:
    """Returns the minimum detectable effect: the difference that a two-sided t test finds with probability `POWER`.

    Args:
        sd: The standard deviation of the paired differences.
        n: The number of seeds.
        comparisons: How many comparisons share the level `ALPHA`, in equal parts.
    """
    require("eval", "A plan of seeds", "statsmodels")
    from numpy import asarray
    from statsmodels.stats.power import TTestPower

    solved = TTestPower().solve_power(nobs=n, alpha=ALPHA / comparisons, power=POWER)
    return sd * float(asarray(solved).item())  # some of its solvers give an array of one number


@dataclass(frozen=True, slots=True)
class SeedPlan:
    """The power of a run of `have` seeds, computed before it runs.

    Attributes:
        sd: The standard deviation of a paired difference over `unit`; `source` says where it comes from.
        comparisons: How many comparisons are corrected together.
        floor: The number of seeds below which no verdict is possible.
        expected: The expected half-width, for one comparison by itself.
        detectable: The difference that is found four times in five, in the family.
    """

    sd: float
    source: str
    unit: str
    comparisons: int
    have: int
    floor: int
    expected: float
    detectable: float

    @property
    def text(self) -> str:
        """A description, which is printed before a run and stored with its plan."""
        together = "one comparison" if self.comparisons == 1 else f"{self.comparisons} comparisons corrected together"
        lines = [
            f"Spread of a paired difference over {self.unit}: {_points(self.sd)} points ({self.source}).",
            f"{self.have} {self.unit}: expect +-{_points(self.expected)} points. Of {together}, a difference of "
            f"{_points(self.detectable)} points is found four times in five.",
        ]
        if self.have < self.floor:
            lines.append(f"No verdict is possible: {together} need at least {self.floor} {self.unit}.")
        return "\n".join(lines)


def plan(sd: float, have: int, *, comparisons: int = 1, source: str = "declared", unit: str = "seeds") -> SeedPlan:
    """Returns the power of a number of seeds. Raises TooFewSeeds for fewer than two.

    Args:
        sd: The standard deviation of the paired differences.
        have: The number of seeds, or of other units.
        comparisons: How many comparisons share the level `ALPHA`, in equal parts.
        source: Where the standard deviation is from.
        unit: What is counted, for people.
    """
    floor = fewest(comparisons)
    if have < 2:
        raise TooFewSeeds("A plan", have, floor)
    return SeedPlan(sd, source, unit, comparisons, have, floor, half_width(sd, have), detectable(sd, have, comparisons))


def _points(value: float) -> str:
    return f"{100.0 * value:.1f}" if abs(value) >= 0.0095 else f"{100.0 * value:.2g}"
