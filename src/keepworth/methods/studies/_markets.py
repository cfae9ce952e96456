"""Generated markets with hidden regimes, and the profit of holding an asset or not."""

from __future__ import annotations

import numpy as np

from keepworth.episodes.arrays import Floats

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


def trade(q: Floats, pays: Floats) -> float:
    """Returns the profit in percent per 1,000 bars of the greedy policy of q, [bars, held, action]."""
    held, total = 0, 0.0
    for values, pay in zip(q, pays, strict=True):
        action = int(values[held].argmax())
        total += action * pay - FEE * abs(action - held)
        held = action
    return 1e5 * total / len(pays)
