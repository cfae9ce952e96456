"""TrMRL: meta-learning with a transformer over the last few transitions, which are kept from one episode of a task to the next.

    w_t = W [o_t; a_{t-1}; r_{t-1}; done_{t-1}] + code of its age
    y_t = newest row of Encoder(w_{t-N+1}, ..., w_t), per layer  h <- h + Attention(norm(h)),  h <- h + MLP(norm(h))

All rows of the window attend to all others. `keepworth.control.trials` makes the episodes of a task one, in which the window goes
on; the trainer's settings `action_input` and `reward_input` put what was done and paid among the inputs.
Source: Melo, "Transformers are meta-reinforcement learners", arXiv 2206.06614.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keepworth.methods.control.recurrent_ppo import make as make_ppo
from keepworth.registry import Method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.control.memory_base import SequenceMemory, State
    from keepworth.control.ppo import Trainer
    from keepworth.control.worlds import MakeWorld


def make(input_size: int, width: int = 128, *, window: int = 5, layers: int = 4, heads: int = 4) -> SequenceMemory:
    """Builds the module.

    Args:
        input_size, width: The numbers in an input, and in an output.
        window: N, the transitions that are seen, the current one among them.
        layers: The layers of the transformer.
        heads: The heads of attention, which divide the width.
    """
    import torch
    from torch import nn
    from torch.nn.functional import scaled_dot_product_attention

    from keepworth.control.attention import age_code
    from keepworth.control.memory_base import SegmentedMemory
    from keepworth.control.windows import Window

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
            self.input = nn.Linear(width, 3 * width)
            self.output = nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x: Tensor, seen: Tensor) -> Tensor:
            parts = self.input(self.norms[0](x)).unflatten(-1, (3, heads, -1)).movedim(-2, -4)
            query, key, value = parts.unbind(-2)
            read = scaled_dot_product_attention(query, key, value, attn_mask=seen)
            x = x + self.output(read.transpose(-3, -2).flatten(-2))
            return x + self.mlp(self.norms[1](x))

    class TrMrl(SegmentedMemory):
        state_shapes = (window - 1, width), (window - 1,)
        """The embedded transitions before the current one, and which of them there are."""

        def __init__(self) -> None:
            super().__init__(input_size, width)
            self.context = self.reach = window
            self.embed = nn.Linear(input_size, width)
            self.layers = nn.ModuleList(Layer() for _ in range(layers))
            self.norm = nn.LayerNorm(width)

        def run(self, x: Tensor, state: State, starts: Tensor | None, mask: Tensor | None) -> tuple[Tensor, State]:
            memory, valid = state
            ages = torch.arange(window - 1, -1, -1, device=x.device)
            span = Window(valid, x.shape[1], starts, mask)
            rows = torch.cat([memory, self.embed(x)], 1)
            steps = torch.arange(x.shape[1], device=x.device).unsqueeze(1)
            places = steps + window - 1 - ages
            seen = span.seen[:, steps, places]
            h = rows[:, places] * seen.unsqueeze(-1) + age_code(ages, width).to(x.dtype)
            for layer in self.layers:
                h = layer(h, seen[:, :, None, None])
            return self.norm(h[:, :, -1]), (span.keep(rows), span.valid)

    return TrMrl()


def _make_agent(world: str | MakeWorld, memory: str = "trmrl", *, trial: int = 2, **settings: Any) -> Trainer:
    """A trainer over trials. trial: episodes in one."""
    return make_ppo(world, memory, trial=trial, **{"reward_input": True, **settings})


METHODS = [
    Method(
        kind="memory_module",
        name="trmrl",
        title="TrMRL",
        about="Is a transformer over the last few transitions",
        tags=("latent", "working", "formation", "retrieval"),
        paper="arXiv 2206.06614",
        claim="It is as good as RL2, PEARL and MAML in MuJoCo and MetaWorld or better, and better outside the trained tasks.",
        differs="Norms before attention replace T-Fixup.",
        make=make,
        extra="control",
    ),
    Method(
        kind="control_agent",
        name="trmrl_ppo",
        title="TrMRL's trials",
        about="Is PPO over several episodes of a task, through which the memory goes on",
        tags=("latent", "working", "retrieval"),
        paper="arXiv 2206.06614",
        claim="It is as good as RL2, PEARL and MAML in MuJoCo and MetaWorld or better, and better outside the trained tasks.",
        differs=(
            "Advantages pass from one episode of a trial to the next, as in RL2, and a task is a seed of the world."
        ),
        make=_make_agent,
        extra="control",
    ),
]
