"""InfoPower: a world model that tells observations apart instead of reconstructing them, and holds first what actions change.

    contrast      -log softmax_j (e(o_t) W (h_t, z_t)_j)[own]           the observations of other rows are told apart (NCE)
    empowerment   -log q(a_t | h_t, z_t, z_t+1)                         a bound of I(a_t; z_t+1 | h_t, z_t), up to H(pi)
    reward        r_t + bonus (log q(a_t | h_t, z_t, z_t+1) - log pi(a_t | h_t, z_t))        in what is imagined

The first two take the place of the error of observations. The model and the learner are those of
`keepworth.control.imagination`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keepworth.registry import Method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.control.imagination import Dream, ImaginationTrainer, ModelBatch
    from keepworth.control.worlds import MakeWorld


def make(
    world: str | MakeWorld,
    memory: str = "lru",
    *,
    contrast: float = 1.0,
    empowerment: float = 1.0,
    bonus: float = 0.01,
    horizon: int = 8,
    actor_rate: float = 1e-3,
    **settings: Any,
) -> ImaginationTrainer:
    """Returns a trainer whose `update` plays and learns until the next row of the curve.

    Args:
        world: A Gymnasium id, or a function that makes a world, whose actions are choices.
        memory: A sequence memory's name.
        contrast: The weight of telling observations apart.
        empowerment: The weight of the likelihood of actions; 0 for contrast alone.
        bonus: The weight of empowerment in what the actor is paid; 0 for none.
        horizon: Steps that are imagined.
        actor_rate: The rate of Adam of actor and critic; `learning_rate` is that of the model.
        settings: Those of `keepworth.control.imagination.SETTINGS`; see `keepworth.control.settings.OffPolicySettings`.
    """
    import torch
    from torch import nn

    from keepworth.control.imagination import ImaginationTrainer, ModelSettings
    from keepworth.control.network import layers
    from keepworth.control.settings import SettingError
    from keepworth.methods.control.contrastive_pretraining import nce_loss

    if min(contrast, empowerment, bonus) < 0.0 or not (contrast or empowerment):
        raise SettingError(
            f"contrast = {contrast}, empowerment = {empowerment} and bonus = {bonus} learn nothing of observations.",
            "Set one of the first two above 0, and none below.",
        )
    if bonus and not empowerment:
        raise SettingError(
            f"bonus = {bonus} pays for what empowerment = 0 does not learn.", "Leave the bonus out, by 0."
        )

    class Infopower(ImaginationTrainer):
        """A learner that imagines, with contrast and empowerment in the place of reconstruction."""

        def make_parts(self) -> nn.ModuleDict:
            network, width = self.network, self.settings.width
            return nn.ModuleDict(
                {
                    "embed": layers(network.observation_size, width, width),
                    "query": nn.Linear(network.features, width, bias=False),
                    "inverse": layers(network.features + network.latent, width, self.actions.size),
                }
            )

        def observation_loss(self, batch: ModelBatch) -> Tensor:
            features = batch.features
            anchors = self.parts["embed"](batch.columns["features"].flatten(0, 1))
            told_apart = nce_loss(anchors, self.parts["query"](features.flatten(0, 1)))
            columns = batch.columns
            inside = columns["valid"][:, :-1] & ~columns["starts"][:, 1:]
            likelihood = self._likelihood(features[:, :-1], batch.z[:, 1:], columns["actions"][:, :-1])
            of_actions = (likelihood * inside).sum() / inside.sum().clamp(min=1)
            return contrast * told_apart - empowerment * of_actions

        def _likelihood(self, features: Tensor, following: Tensor, actions: Tensor) -> Tensor:
            outputs = self.parts["inverse"](torch.cat([features, following], -1))
            return self.actions.judge(outputs, self.network.log_std, actions)[0]

        def bonus(self, dream: Dream, log_probs: Tensor) -> Tensor | None:
            if not bonus:
                return None
            likelihood = self._likelihood(dream.features[:-1], dream.z[1:], dream.actions)
            return bonus * (likelihood - log_probs)

    return Infopower(world, memory, ModelSettings(horizon=horizon, actor_rate=actor_rate), **settings)


METHOD = Method(
    kind="control_agent",
    name="infopower",
    title="InfoPower",
    about="Learns a model by telling observations apart, and by what its actions change, instead of by reconstruction",
    paper="arXiv 2204.08585",
    claim="Empowerment lets the latent hold first what the agent controls, also among distractors (no number checked).",
    differs=(
        "The form of the bound is this project's, as the paper's could not be verified. Latents are categories that depend on "
        "the observation alone, vectors take the place of images, and the two losses have fixed weights."
    ),
    label="small",
    make=make,
    extra="control",
)
