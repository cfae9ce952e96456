"""Conservative forward-backward: from poor logs without rewards a policy for any reward, which trusts no choice that they lack.

    loss of forward-backward + conservative * mean_i [log sum_a exp F(h_i, a, z_i) . z_i - F(h_i, a_i, z_i) . z_i]

For every task z at once the values of choices that were not logged are pushed down, as CQL does for one. Where logs are few or
alike, forward-backward believes of choices that it never saw, and of which no loss says that they are bad, that they are best.
The learner is `keepworth.methods.control.forward_backward`, which has the formulas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keepworth.methods.control.forward_backward import make as make_forward_backward
from keepworth.registry import Method

if TYPE_CHECKING:
    from keepworth.control.logs import Logs
    from keepworth.control.off_policy import OffPolicyTrainer
    from keepworth.control.worlds import MakeWorld


def make(
    world: str | MakeWorld, memory: str = "gru", *, logs: Logs, conservative: float = 0.03, **settings: Any
) -> OffPolicyTrainer:
    """Returns a trainer whose `update` learns from logs, and whose `name_task` then says what is to be paid for.

    Args:
        world: A Gymnasium id, or a function that makes a world; `keepworth.control.logs.SpacesOf` where there is none. Its
            actions are choices.
        memory: A sequence memory's name; "mlp" for none.
        logs: By source, episodes, which need no rewards; `keepworth.control.logs.read_logs` opens a folder of them.
        conservative: Weight of the loss that lowers the values of choices that were not logged. It has to be tried.
        settings: As in `keepworth.methods.control.forward_backward.make`.
    """
    return make_forward_backward(world, memory, logs=logs, conservative=conservative, **settings)


METHOD = Method(
    kind="control_agent",
    name="conservative_forward_backward",
    title="On Zero-Shot RL: conservative forward-backward",
    about="Learns from poor logs without rewards a policy for every reward, and lowers the values of choices they lack",
    paper="arXiv 2508.16496",
    claim=(
        "From small or homogeneous logs it exceeds forward-backward, and it is not below it from large and diverse ones (chapter "
        "of arXiv 2309.15178)."
    ),
    differs=(
        "Of the thesis the conservative values alone: its memory is forward_backward, conservative measures and control without "
        "logs are not here. Actions are choices; the weight is fixed, where the paper adapts it."
    ),
    label="small",
    make=make,
    extra="control",
)
