"""Linear attention with decay: per head a matrix of keys by values, and a decay that depends on the input.

    M_t = a_t M_{t-1} + k_t v_t^T,   r_t = M_t^T q_t,   a_t = sigmoid(w x_t + b) per head
    y_t = W norm(r_t), with keys and queries phi(k) = elu(k) + 1, scaled by 1 / sqrt(size of a key)

Computed in chunks: inside one as masked attention with weights prod a, between chunks by passing on the matrix. At first heads
decay over spans of 4 to 256 steps.
Source: Katharopoulos et al., "Transformers are RNNs", arXiv 2006.16236; decay with chunks: Sun et al., "Retentive network", arXiv
2307.08621; a gate per head: Dao and Gu, "Transformers are SSMs", arXiv 2405.21060.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keepworth.registry import Method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.control.memory_base import SequenceMemory, State


def make(
    input_size: int, width: int = 128, *, blocks: int = 1, heads: int = 4, key: int = 16, chunk: int = 32
) -> SequenceMemory:
    """Builds the module.

    Args:
        input_size, width: The numbers in an input, and in an output.
        blocks: The number of blocks.
        heads: The matrices of the state, which divide the width.
        key: The size of a head's keys.
        chunk: The steps that are computed at once, as attention.
    """
    import torch
    from torch import nn
    from torch.nn.functional import elu, logsigmoid

    from keepworth.control.memory_base import SequenceMemory, stack

    class LinearAttention(SequenceMemory):
        state_shapes = ((heads, key, width // heads),)

        def __init__(self, size: int) -> None:
            super().__init__(size, width)
            self.input = nn.Linear(size, 2 * heads * key + width, bias=False)
            self.fading = nn.Linear(size, heads)
            self.norm = nn.LayerNorm(width // heads)
            self.output = nn.Linear(width, width)
            with torch.no_grad():
                self.fading.bias.copy_((torch.logspace(2, 8, heads, base=2.0) - 1).log())

        def forward(
            self, x: Tensor, state: State | None = None, starts: Tensor | None = None, mask: Tensor | None = None
        ) -> tuple[Tensor, State]:
            (matrix,) = state or self.initial_state(x.shape[0])
            valid = torch.ones_like(x[..., 0], dtype=torch.bool) if mask is None else mask
            starts = torch.zeros_like(valid) if starts is None else starts & valid
            queries, keys, values = self.input(x).split([heads * key, heads * key, width], -1)
            queries = (elu(queries) + 1) * key**-0.5
            keys = (elu(keys) + 1) * valid.unsqueeze(-1)
            fading = logsigmoid(self.fading(x)) * valid.unsqueeze(-1)
            reads = []
            parts = (t.unflatten(-1, (heads, -1)).transpose(1, 2).split(chunk, 2) for t in (queries, keys, values))
            flags = (fading.transpose(1, 2).split(chunk, 2), starts.split(chunk, 1))
            for query, key_rows, value, left, start in zip(*parts, *flags, strict=True):
                read, matrix = attend(query, key_rows, value, left, start, matrix)
                reads.append(read)
            read = torch.cat(reads, 2).transpose(1, 2)
            return self.output(self.norm(read).flatten(2)), (matrix,)

    def attend(
        query: Tensor, keys: Tensor, values: Tensor, fading: Tensor, starts: Tensor, matrix: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns the reads of one chunk and the matrix after it.

        Args:
            query, keys, values: [batch, heads, time, size] each.
            fading: Logarithms of the decay, [batch, heads, time].
            starts: Where an episode starts, [batch, time].
        """
        time = fading.shape[2]
        since = fading.unsqueeze(3).expand(-1, -1, -1, time).tril(-1).cumsum(2)  # log decay from step j to t
        episode = starts.long().cumsum(1)
        same = (episode.unsqueeze(2) == episode.unsqueeze(1)).tril().unsqueeze(1)
        left = since.exp() * same
        carried = fading.cumsum(2).exp() * (episode == 0).unsqueeze(1)
        read = (query @ keys.transpose(2, 3) * left) @ values + carried.unsqueeze(3) * (query @ matrix)
        written = (keys * left[:, :, -1].unsqueeze(3)).transpose(2, 3) @ values
        return read, carried[:, :, -1, None, None] * matrix + written

    return stack(LinearAttention, input_size, width, blocks)


METHOD = Method(
    kind="memory_module",
    name="linear_attention",
    title="Decaying linear attention",
    about="Keeps a matrix of keys by values for each head, which fades as the input chooses",
    tags=("latent", "working", "formation", "evolution"),
    paper="arXiv 2307.08621",
    differs="It has no rotation of keys and a gate for each head, in a block with two more layers.",
    make=make,
    extra="control",
)
