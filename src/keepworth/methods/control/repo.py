"""RePo: a world model without reconstruction, whose latent holds as few nats as its target says beyond what can be predicted.

    model   (r - r')^2 / (2 var r) - log p(c) + beta (n / (1 + n) KL(sg(q) | p) + 1 / (1 + n) KL(q | sg(p)) - target)
    beta    log beta goes up by its gradient, KL - target

The prior has to predict what the posterior encodes. Noise cannot be predicted, and rewards do not need it, so it is left out.
The model and the learner are those of `keepworth.control.imagination`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keepworth.registry import Method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.control.imagination import ImaginationTrainer, ModelBatch
    from keepworth.control.worlds import MakeWorld


def make(
    world: str | MakeWorld,
    memory: str = "lru",
    *,
    target: float = 0.3,
    balance: float = 4.0,
    beta: float = 0.1,
    beta_rate: float = 1e-2,
    horizon: int = 8,
    actor_rate: float = 1e-3,
    **settings: Any,
) -> ImaginationTrainer:
    """Returns a trainer whose `update` plays and learns until the next row of the curve.

    Args:
        world: A Gymnasium id, or a function that makes a world, whose actions are choices.
        memory: A sequence memory's name.
        target: Nats of a step that the latent may hold beyond the prior.
        balance: How much faster the prior goes to the posterior than the other way, n.
        beta: The multiplier at first.
        beta_rate: The rate of Adam of its logarithm.
        horizon: Steps that are imagined.
        actor_rate: The rate of Adam of actor and critic; `learning_rate` is that of the model.
        settings: Those of `keepworth.control.imagination.SETTINGS`; see `keepworth.control.settings.OffPolicySettings`.
    """
    import math

    import torch

    from keepworth.control.imagination import ImaginationTrainer, ModelSettings, balanced
    from keepworth.control.settings import SettingError

    for name, value in (("target", target), ("balance", balance), ("beta", beta), ("beta_rate", beta_rate)):
        if value <= 0.0:
            raise SettingError(f"{name} = {value} is not above 0.", f"Set {name} to 1, for example.")

    class Repo(ImaginationTrainer):
        """A learner that imagines, with a bound in the place of reconstruction."""

        def __init__(self) -> None:
            super().__init__(world, memory, ModelSettings(horizon=horizon, actor_rate=actor_rate), **settings)
            self.log_beta = torch.tensor(math.log(beta), requires_grad=True)
            self.optimisers["beta"] = torch.optim.Adam([self.log_beta], beta_rate)

        def observation_loss(self, batch: ModelBatch) -> Tensor:
            return batch.h.new_zeros(())

        def divergence_loss(self, batch: ModelBatch) -> Tensor:
            to_prior, to_posterior = (of.mean() for of in balanced(batch.posterior[:, 1:], batch.prior))
            loss, of_beta = bounded_losses(to_prior, to_posterior, self.log_beta, target, balance)
            self._step("beta", of_beta, [self.log_beta])
            return loss

        def save(self) -> dict[str, Any]:
            return super().save() | {"log_beta": self.log_beta.detach().clone()}

        def load(self, saved: dict[str, Any]) -> None:
            super().load(saved)
            with torch.no_grad():
                self.log_beta.copy_(saved["log_beta"])

    return Repo()


def bounded_losses(
    to_prior: Tensor, to_posterior: Tensor, log_beta: Tensor, target: float, balance: float
) -> tuple[Tensor, Tensor]:
    """Returns beta (n / (1 + n) KL(sg(q) | p) + 1 / (1 + n) KL(q | sg(p)) - target), and -log beta (KL - target).

    The gradient of the first reaches the model alone, that of the second beta alone.

    Args:
        to_prior: KL(sg(q) | p).
        to_posterior: KL(q | sg(p)), which is the same number.
        log_beta: The logarithm of the multiplier.
        target: The bound.
        balance: n.
    """
    mixed = (balance * to_prior + to_posterior) / (1.0 + balance)
    return log_beta.detach().exp() * (mixed - target), -log_beta * (to_prior.detach() - target)


METHOD = Method(
    kind="control_agent",
    name="repo",
    title="RePo",
    about="Learns a model without reconstruction, whose latent is bounded to what rewards need and the past predicts",
    paper="arXiv 2309.00082",
    claim="What is learned by rewards and predictability alone resists distractors that reconstruction encodes.",
    differs=(
        "Latents are categories that depend on the observation alone, vectors take the place of images, and target, balance "
        "and multiplier are this project's numbers. The re-alignment of the encoder in a new domain is not here."
    ),
    label="small",
    make=make,
    extra="control",
)
