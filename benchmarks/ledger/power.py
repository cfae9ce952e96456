"""How many withheld episodes a verdict takes, whatever the test.

    python -m benchmarks.ledger.power

One item raises the chance of success from 0.4 to 0.6. For each rate of withholding, and 800 episodes: what withholding costs; and
in how many of 4,000 runs there is a verdict, by three tests of level 5 %:

    ledger       the interval of the ledger, which knows nothing beforehand and may be looked at after every reward
    likelihood   the likelihood ratio of both chances, known beforehand, at least 40 (twice 1 / 0.05, for two signs): no test that
                 may be looked at after every reward needs fewer in the mean (Wald 1945)
    one look     the most powerful test for a number of episodes that was set beforehand, which knows both chances (Neyman and
                 Pearson 1933): no valid test whatsoever has a larger share after as many withheld

The shares of the last are computed, from the binomial distribution.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binom

from benchmarks.record import save, takes_nothing
from keepworth.memory.choose import ledger

OUT = Path(__file__).parent / "power.json"
WITH, WITHOUT, EPISODES, RUNS, SEED, LEVEL = 0.6, 0.4, 800, 4000, 21, 0.05
RATES = (0.01, 0.025, 0.05, 0.0625, 0.08, 0.1, 0.15)


def verdicts(rate: float) -> tuple[float, float]:
    """Shares of runs with a right verdict, by the ledger's interval and by the likelihood ratio."""
    rng = np.random.default_rng([SEED, round(10_000 * rate)])
    shown = rng.random((RUNS, EPISODES)) >= rate
    won = rng.random((RUNS, EPISODES)) < np.where(shown, WITH, WITHOUT)
    ratio = np.log(np.where(won, WITHOUT / WITH, (1.0 - WITHOUT) / (1.0 - WITH))) * ~shown
    likely = (ratio.cumsum(axis=1) >= np.log(2.0 / LEVEL)).any(axis=1)
    # What is expected is taken as known: the ledger learns it, and needs a few more.
    expected = rate * WITH + (1.0 - rate) * WITHOUT
    psi = ledger.scores(shown.astype(float), np.array(1.0 - rate), won.astype(float), expected)
    n = np.arange(1, EPISODES + 1)
    spread = ledger.deviation(n, psi.cumsum(axis=1), (psi * psi).cumsum(axis=1), 0.25 / (rate * (1.0 - rate)))
    clear = psi.cumsum(axis=1) / n > ledger.half_width(n, spread, LEVEL)
    clear &= (~shown).cumsum(axis=1) >= ledger.LEAST_EACH
    return float(clear.any(axis=1).mean()), float(likely.mean())


def one_look(withheld: int) -> float:
    """The power of the most powerful test of this many withheld, at half the level for one sign, drawing where it is even."""
    chances = binom.pmf(np.arange(withheld + 1), withheld, WITH)
    limit = int(np.searchsorted(chances.cumsum(), LEVEL / 2.0))
    below = float(chances[:limit].sum())
    part = (LEVEL / 2.0 - below) / float(chances[limit])
    return float(binom.cdf(limit - 1, withheld, WITHOUT) + part * binom.pmf(limit, withheld, WITHOUT))


def main() -> None:
    takes_nothing(__doc__)
    rows: list[dict[str, Any]] = []
    for rate in RATES:
        withheld = round(rate * EPISODES)
        by_ledger, by_likelihood = verdicts(rate)
        rows.append(
            {
                "rate": rate,
                "points": round(100.0 * rate * (WITH - WITHOUT), 3),
                "withheld": withheld,
                "ledger": by_ledger,
                "likelihood": by_likelihood,
                "one look": round(one_look(withheld), 4),
            }
        )
        print(rows[-1], flush=True)
    body = {
        "command": "python -m benchmarks.ledger.power",
        "chances": [WITH, WITHOUT],
        "episodes": EPISODES,
        "runs": RUNS,
        "seed": SEED,
        "level": LEVEL,
        "versions": {name: version(name) for name in ("numpy", "scipy", "keepworth")},
        "rows": rows,
    }
    save(OUT, body)


if __name__ == "__main__":
    main()
