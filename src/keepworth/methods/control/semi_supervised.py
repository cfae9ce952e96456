"""Semi-supervised offline RL: fills in what most logs lack, rewards or actions, and learns from all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keepworth.methods.control.offline import make as make_offline
from keepworth.registry import Method

if TYPE_CHECKING:
    from keepworth.control.logs import Logs
    from keepworth.control.off_policy import OffPolicyTrainer
    from keepworth.control.worlds import MakeWorld


def make(
    world: str | MakeWorld, memory: str = "gru", *, logs: Logs, past: int = 1, **settings: Any
) -> OffPolicyTrainer:
    """Returns a trainer whose `update` learns from logs whose gaps were filled in.

    Args:
        world: A Gymnasium id, or a function that makes a world; `keepworth.control.logs.SpacesOf` where there is none.
        memory: A sequence memory's name.
        logs: By source, episodes, in which a reward or an action that is missing is None or NaN.
        past: Steps before a step that the networks see which fill in.
        settings: As in `keepworth.methods.control.offline.make`.
    """
    from keepworth.control.labels import fill_in
    from keepworth.control.worlds import maker

    made = (world if callable(world) else maker(world))()
    spaces = made.observation_space, made.action_space
    filled = {source: fill_in(episodes, *spaces, past=past).episodes for source, episodes in logs.items()}
    return make_offline(world, memory, logs=filled, **{"learner": "iql", **settings})


METHOD = Method(
    kind="control_agent",
    name="ss_orl",
    title="SS-ORL",
    about="Fills in the rewards or actions that most logs lack by networks that learn them from the others",
    paper="arXiv 2210.06518",
    claim="With a tenth of the logs labelled, also the worse ones, it comes near what all labels give.",
    differs=(
        "Besides actions, which are all that the paper's logs lack, rewards are filled in. The inverse model predicts one action "
        "and no distribution, and the learner has a memory."
    ),
    make=make,
    extra="control",
)
