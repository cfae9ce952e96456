"""Drama: a world model whose memory is a selective recurrence, and which chooses what it learns from and what it imagines from.

    learned from    with a probability in proportion to exp(-n_k / tau)                                   what is fresh
    imagined from   softmax of (n_k - alpha m_k - beta max(0, n_k - m_k)) / tau'                          what it knows

n_k says how often the row k began a window that was learned from, m_k how often one that was imagined from. Windows are
chosen so from eight times as many that are drawn evenly. The model and the learner are those of
`keepworth.control.imagination`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from keepworth.registry import Method

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from keepworth.control.imagination import ImaginationTrainer
    from keepworth.control.replay import Windows
    from keepworth.control.worlds import MakeWorld

MORE = 8
"""Windows that are drawn evenly for each that is taken."""


def make(
    world: str | MakeWorld,
    memory: str = "selective",
    *,
    fresh: float = 10.0,
    familiar: float = 10.0,
    alpha: float = 1.0,
    beta: float = 0.5,
    context: int = 2,
    horizon: int = 8,
    actor_rate: float = 1e-3,
    **settings: Any,
) -> ImaginationTrainer:
    """Returns a trainer whose `update` plays and learns until the next row of the curve.

    Args:
        world: A Gymnasium id, or a function that makes a world, whose actions are choices.
        memory: A sequence memory's name: a selective recurrence.
        fresh: How much fresh windows come first in what is learned: the less, the more.
        familiar: How much known windows come first in what is imagined from: the less, the more.
        alpha: How much it counts against a window that it was imagined from.
        beta: How much it counts against a window that it was learned more often than it was imagined from.
        context: Rows at the beginning of a window that nothing is imagined from.
        horizon: Steps that are imagined.
        actor_rate: The rate of Adam of actor and critic; `learning_rate` is that of the model.
        settings: Those of `keepworth.control.imagination.SETTINGS`; see
            `keepworth.control.settings.OffPolicySettings`.
    """
    import torch

    from keepworth.control.imagination import ImaginationTrainer, ModelSettings
    from keepworth.control.settings import SettingError

    for name, value in (("fresh", fresh), ("familiar", familiar)):
        if value <= 0.0:
            raise SettingError(f"{name} = {value} is not above 0.", f"Set {name} to 10, for example.")

    class Drama(ImaginationTrainer):
        """A learner that imagines, with windows chosen by how often they were used."""

        def _stored(self, state: Any, critics_state: Any) -> dict[str, Tensor]:
            none = torch.zeros(len(critics_state[0]))
            return {"learned": none, "imagined": none}

        def draw_windows(self, shares: Mapping[str, float]) -> Windows:
            windows = self._choose(shares, lambda learned, imagined: -learned / fresh)
            self._count("learned", windows)
            return windows

        def windows_to_imagine(self, windows: Windows, shares: Mapping[str, float]) -> Windows:
            windows = self._choose(
                shares, lambda learned, imagined: imagination_score(learned, imagined, alpha, beta) / familiar
            )
            self._count("imagined", windows)
            return windows

        def _choose(self, shares: Mapping[str, float], score: Any) -> Windows:
            asked, columns = self.settings, self.replay.columns
            lead = {"burnt_in": asked.burn_in or 0, "recomputed": asked.capacity}.get(asked.hidden, 0)
            windows = self.replay.draw(MORE * asked.batch, asked.length, lead, shares, self.draw)
            first = windows.rows[:, 0]
            chances = score(columns["learned"][first], columns["imagined"][first])
            return windows.take(draw_by(chances, asked.batch, self.draw))

        def _count(self, name: str, windows: Windows) -> None:
            ones = torch.ones(len(windows.rows))
            self.replay.columns[name].index_add_(0, windows.rows[:, 0], ones)

    model = ModelSettings(horizon=horizon, context=context, actor_rate=actor_rate)
    return Drama(world, memory, model, **settings)


def imagination_score(learned: Tensor, imagined: Tensor, alpha: float, beta: float) -> Tensor:
    """Returns n - alpha m - beta max(0, n - m).

    Args:
        learned: How often each window was learned from, n.
        imagined: How often it was imagined from, m.
        alpha: How much it counts against a window that it was imagined from.
        beta: How much it counts against it that it was learned more often.
    """
    return learned - alpha * imagined - beta * (learned - imagined).clamp(min=0.0)


def draw_by(scores: Tensor, number: int, draw: torch.Generator) -> Tensor:
    """Draws rows without replacement, each time by the softmax of the scores of those that are left.

    Args:
        scores: [rows].
        number: How many are drawn.
        draw: The source of the random numbers.
    """
    import torch

    noise = -torch.empty_like(scores).exponential_(generator=draw).log()
    return (scores + noise).topk(number).indices


METHOD = Method(
    kind="control_agent",
    name="drama",
    title="Drama",
    about="Learns a model over a selective recurrence from what is fresh, and imagines from what the model knows",
    paper="arXiv 2410.08893",
    claim="Choosing windows by their use raises the normalised score from about 80 % to about 105 % (second hand).",
    differs=(
        "The form of the two chances is that of public code derived from the paper's, and their four numbers are this "
        "project's. Observations are vectors, one layer is 32 to 128 wide in place of some 7 million weights, and the action "
        "reaches the prior beside the memory's output. Actions are choices."
    ),
    label="small",
    make=make,
    extra="control",
)
