"""What so many seeds can say, before anything runs.

A plan starts from the declared spread of a paired difference over what is resampled (seeds, houses, conversations). Everything
is by Student's t. Effects are tested at Holm's worst case: the first of `comparisons` at ALPHA over all. Numbers are scores in
[0, 1]; text is in points, hundredths of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from keepworth.episodes.extras import require
from keepworth.evaluation.statistics import ALPHA, LEAST, TooFewSeeds

POWER = 0.8
"""The chance of finding an effect of the planned size."""
DECLARED = 0.06
"""The spread of streams: of 300 tasks, 9 in 10 comparisons stay below."""


def over_questions(questions: int, clusters: int) -> float:
    """The declared spread, over clusters of questions, of the difference between two systems whose answers are right or wrong.

    One of the systems alone answers a quarter of the questions, and two differences in one cluster have a correlation of 0.05.
    """
    size = questions / clusters
    return math.sqrt(0.25 * (1.0 / size + 0.05 * (1.0 - 1.0 / size)))


def fewest(comparisons: int) -> int:
    """The fewest seeds with which a sign-flip test can hold in a family of so many comparisons: 2^(1 - n) < ALPHA / m."""
    return max(LEAST, math.floor(1 + math.log2(max(1, comparisons) / ALPHA)) + 1)


def half_width(sd: float, n: int) -> float:
    """Of the 95 % t interval of a mean over `n` seeds, where their spread is `sd`."""
    require("eval", "A plan of seeds", "scipy")
    from scipy.stats import t

    return float(t.ppf(1.0 - ALPHA / 2.0, n - 1)) * sd / math.sqrt(n)


def detectable(sd: float, n: int, comparisons: int = 1) -> float:
    """The minimum detectable effect: the difference that a two-sided t test over `n` seeds finds with the chance `POWER`."""
    require("eval", "A plan of seeds", "statsmodels")
    from statsmodels.stats.power import TTestPower

    alone: float = TTestPower().solve_power(nobs=n, alpha=ALPHA / comparisons, power=POWER)
    return sd * alone


@dataclass(frozen=True, slots=True)
class SeedPlan:
    """What a run of `have` seeds can say, before it runs.

    Attributes:
        sd: The spread of a paired difference over `unit`, and `source`, where it comes from.
        comparisons: How many are corrected together.
        floor: Seeds below which no verdict is possible.
        expected: The half-width to expect, for one comparison by itself.
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
        """For people, printed before a run and kept with its plan."""
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
    """What `have` seeds can say where the spread is `sd`. Raises TooFewSeeds for fewer than two."""
    floor = fewest(comparisons)
    if have < 2:
        raise TooFewSeeds("A plan", have, floor)
    return SeedPlan(sd, source, unit, comparisons, have, floor, half_width(sd, have), detectable(sd, have, comparisons))


def _points(value: float) -> str:
    return f"{100.0 * value:.1f}" if abs(value) >= 0.0095 else f"{100.0 * value:.2g}"
