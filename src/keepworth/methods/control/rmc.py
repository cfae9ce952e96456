"""RMC: relational memory core. Slots attend to one another and to the input, and gates write the result.

    A = attention with queries from M, keys and values from [M; Wx x], after layer normalisation of all three
    M1 = norm(M + A),  M2 = norm(M1 + MLP(M1)), the same MLP for every slot
    f, i = split(Wx' x + Wm tanh(M)),  M' = sigmoid(i) * tanh(M2) + sigmoid(f + 1) * M,  y = Wo flatten(M')

At first slot s is one-hot at s.
Source: Santoro et al., "Relational recurrent neural networks", arXiv 1806.01822.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepworth.registry import Method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.control.memory_base import SequenceMemory, State


def make(input_size: int, width: int = 128, *, slots: int = 4, slot_size: int = 64, heads: int = 4) -> SequenceMemory:
    """Builds the module.

    Args:
        input_size, width: The numbers in an input, and in an output.
        slots: The rows of the state.
        slot_size: The numbers in a row, over all heads.
        heads: The heads of attention, which divide the width.
    """
    import torch
    from torch import nn
    from torch.nn.functional import scaled_dot_product_attention

    from keepworth.control.memory_base import StepRecurrence

    class Rmc(StepRecurrence):
        def __init__(self) -> None:
            super().__init__(input_size, width)
            self.input = nn.Linear(
                input_size, 3 * slot_size
            )  # a row beside the slots, and the input's part of the gates
            self.attention = nn.Linear(slot_size, 3 * slot_size)
            self.attention_norm = nn.LayerNorm(3 * slot_size)
            self.norms = nn.ModuleList(nn.LayerNorm(slot_size) for _ in range(2))
            self.mlp = nn.Sequential(nn.Linear(slot_size, slot_size), nn.ReLU(), nn.Linear(slot_size, slot_size))
            self.gates = nn.Linear(slot_size, 2 * slot_size, bias=False)
            self.output = nn.Linear(slots * slot_size, width)

        def initial_state(self, batch: int) -> State:
            one_hot = torch.eye(slots, slot_size, dtype=self.output.weight.dtype, device=self.output.weight.device)
            return (one_hot.expand(batch, -1, -1).clone(),)

        def project(self, x: Tensor) -> Tensor:
            return self.input(x)

        def cell(self, x: Tensor, state: State) -> tuple[Tensor, State]:
            (memory,) = state
            row, gates = x.unsqueeze(1).split([slot_size, 2 * slot_size], -1)
            parts = self.attention_norm(self.attention(torch.cat([memory, row], 1)))
            query, key, value = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in parts.chunk(3, -1))
            read = scaled_dot_product_attention(query[:, :, :slots], key, value).transpose(1, 2).flatten(2)
            mixed = self.norms[0](memory + read)
            mixed = self.norms[1](mixed + self.mlp(mixed))
            forget, write = (gates + self.gates(memory.tanh())).chunk(2, -1)
            memory = write.sigmoid() * mixed.tanh() + (forget + 1).sigmoid() * memory
            return self.output(memory.flatten(1)), (memory,)

    return Rmc()


METHOD = Method(
    kind="memory_module",
    name="rmc",
    title="Relational memory core",
    about="Keeps slots that attend to one another and to the input, with gates that write",
    tags=("latent", "working", "formation", "evolution", "retrieval"),
    paper="arXiv 1806.01822",
    claim="In the viewable world of Mini Pacman it has about twice the score of an LSTM.",
    make=make,
    extra="control",
)
