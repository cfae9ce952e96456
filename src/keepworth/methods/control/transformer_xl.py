"""Transformer-XL and GTrXL: attention over the last steps, which are kept as keys and values.

    score_ij = (q_i + u) . k_j + (q_i + v) . (R r_{i-j}),  over the step itself and the `window` steps before it
    Transformer-XL:  x' = norm(x + Attention(x)),  x'' = norm(x' + MLP(x'))
    GTrXL:  x' = gate(x, relu(Attention(norm(x)))),  x'' = gate(x', relu(MLP(norm(x'))))
    gate(x, y): r = sigmoid(Wr y + Ur x), z = sigmoid(Wz y + Uz x - bias), h = tanh(Wg y + Ug (r * x)), (1 - z) * x + z * h

u and v are learned per head, r_{i-j} are sines and cosines of the distance. bias = 2 at first keeps a block near the identity.
Source: Dai et al., "Transformer-XL", arXiv 1901.02860; Parisotto et al., "Stabilizing transformers for reinforcement
learning", arXiv 1910.06764.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from keepworth.registry import Method

if TYPE_CHECKING:
    from torch import Tensor

    from keepworth.control.memory_base import SequenceMemory, State
    from keepworth.control.windows import Window


def make(
    input_size: int, width: int = 128, *, layers: int = 2, heads: int = 4, window: int = 64, gated: bool = False
) -> SequenceMemory:
    """Builds the module.

    Args:
        input_size, width: The numbers in an input, and in an output.
        layers: Its layers, which together reach `layers` times as far back as one.
        heads: The heads of attention, which divide the width.
        window: The steps that each layer looks back.
        gated: Whether there are gates in place of sums, and norms before attention, as in GTrXL.
    """
    import torch
    from torch import nn

    from keepworth.control.attention import age_code
    from keepworth.control.memory_base import SegmentedMemory
    from keepworth.control.windows import Window

    class Gate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.of_new = nn.Linear(width, 3 * width)
            self.of_old = nn.Linear(width, 2 * width, bias=False)
            self.of_reset = nn.Linear(width, width, bias=False)
            with torch.no_grad():
                self.of_new.bias.zero_()
                self.of_new.bias[width : 2 * width] = -2.0

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            reset, update, new = self.of_new(y).chunk(3, -1)
            old_reset, old_update = self.of_old(x).chunk(2, -1)
            z = (update + old_update).sigmoid()
            return (1 - z) * x + z * (new + self.of_reset((reset + old_reset).sigmoid() * x)).tanh()

    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(width)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return self.norm(x + y)

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query = nn.Linear(width, width, bias=False)
            self.key_value = nn.Linear(width, 2 * width, bias=False)
            self.relative = nn.Linear(width, width, bias=False)
            self.output = nn.Linear(width, width)
            self.content_bias = nn.Parameter(torch.zeros(width))
            self.place_bias = nn.Parameter(torch.zeros(width))
            self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
            self.norms = nn.ModuleList(nn.LayerNorm(width) if gated else nn.Identity() for _ in range(2))
            self.within = nn.ReLU() if gated else nn.Identity()
            self.join = nn.ModuleList(Gate() if gated else Sum() for _ in range(2))

        def forward(self, x: Tensor, before: Tensor, span: Window) -> tuple[Tensor, Tensor]:
            normed = self.norms[0](x)
            rows = torch.cat([before, self.key_value(normed)], 1)
            read = self.attend(self.query(normed), rows[..., :width], rows[..., width:], span)
            x = self.join[0](x, self.within(self.output(read)))
            x = self.join[1](x, self.within(self.mlp(self.norms[1](x))))
            return x, span.keep(rows)

        def attend(self, query: Tensor, keys: Tensor, values: Tensor, span: Window) -> Tensor:
            def split(rows: Tensor) -> Tensor:
                return rows.unflatten(-1, (heads, -1)).transpose(-3, -2)

            ages = torch.arange(window + 1, device=query.device)
            places = split(self.relative(age_code(ages, width).to(query.dtype)))
            content = split(query + self.content_bias) @ split(keys).transpose(-2, -1)
            by_place = split(query + self.place_bias) @ places.transpose(-2, -1)
            distance = span.distance.clamp(0, window).expand(*content.shape[:2], -1, -1)
            scores = (content + by_place.gather(-1, distance)) * (width // heads) ** -0.5
            weights = scores.masked_fill(~span.seen.unsqueeze(1), -torch.inf).softmax(-1)
            return (weights @ split(values)).transpose(-3, -2).flatten(-2)

    class TransformerXl(SegmentedMemory):
        state_shapes = ((window,), *((window, 2 * width),) * layers)

        def __init__(self) -> None:
            super().__init__(input_size, width)
            self.context, self.reach = window + 1, layers * window + 1
            self.embed = nn.Linear(input_size, width)
            self.layers = nn.ModuleList(Layer() for _ in range(layers))

        def run(self, x: Tensor, state: State, starts: Tensor | None, mask: Tensor | None) -> tuple[Tensor, State]:
            valid, *memory = state
            span = Window(valid, x.shape[1], starts, mask)
            x = self.embed(x)
            after = []
            for layer, rows in zip(self.layers, memory, strict=True):
                x, rows = layer(x, rows, span)
                after.append(rows)
            return x, (span.valid, *after)

    return TransformerXl()


TRANSFORMER_XL = Method(
    kind="memory_module",
    name="transformer_xl",
    title="Transformer-XL",
    about="Attends to the last steps, which are kept as keys and values",
    tags=("latent", "working", "formation", "retrieval"),
    paper="arXiv 1901.02860",
    differs="Keys and values are kept instead of what they are made from, which gives the same numbers.",
    make=make,
    extra="control",
)
METHODS = (
    TRANSFORMER_XL,
    replace(
        TRANSFORMER_XL,
        name="gtrxl",
        title="GTrXL",
        about="Is Transformer-XL with gates in place of sums, so that it begins as a policy without memory",
        paper="arXiv 1910.06764",
        claim="On 30 levels of DMLab it is above an LSTM, where Transformer-XL does not learn.",
        make=partial(make, gated=True),
    ),
)
