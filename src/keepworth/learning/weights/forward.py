"""One forward pass over some rows: every shared context computed once, scores taken only where a token was drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from keepworth.episodes.extras import needs_train

import torch

from keepworth.learning.weights.rows import Rows, by_context
from keepworth.models.attention import Tree, tree
from keepworth.models.inprocess import InProcessModel


@dataclass(frozen=True, slots=True)
class Layout:
    """`tree`: the chosen rows as branches of their contexts, its targets the drawn tokens [N]. place [N]: where each
    stands in the flattened [len(chosen), width]. last [len(chosen)]: flat column of each row's last token."""

    tree: Tree
    place: torch.Tensor
    last: torch.Tensor
    width: int


def layout(rows: Rows, chosen: Sequence[int]) -> Layout:
    shared = by_context(rows.contexts, chosen)
    whole = tree(list(shared), [[rows.answers[row] for row in members] for members in shared.values()])
    at = {row: position for position, row in enumerate(chosen)}
    columns, first = whole.ids.shape[1], whole.ids.shape[1] - whole.mask.shape[2]
    width = rows.batch.shape[1]
    order: list[int] = []
    last = torch.empty(len(chosen), dtype=torch.long)
    for number, members in enumerate(shared.values()):
        column = number * columns + first  # branches stand one after the other behind the padded prompt
        for row in members:
            column += len(rows.answers[row])
            last[at[row]] = column - 1
            order.append(row)
    lengths = torch.tensor([len(rows.answers[row]) for row in order])
    rows_of_tokens = torch.repeat_interleave(torch.tensor(order), lengths)
    column_of = torch.cat([torch.arange(int(length)) for length in lengths])
    drawn = rows.batch.mask[rows_of_tokens, column_of] > 0
    place = torch.repeat_interleave(torch.tensor([at[row] for row in order]), lengths) * width + column_of
    picked = replace(whole, predictor=whole.predictor[drawn], target=whole.target[drawn])
    return Layout(picked, place[drawn], last, width)


def scores(
    model: InProcessModel, rows: Rows, chosen: Sequence[int], temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities and entropies [len(chosen), T] of the chosen rows, zero where nothing was drawn."""
    plan = layout(rows, chosen)
    flat_lp, flat_entropy = model.tree_scores(plan.tree, temperature)
    blank = flat_lp.new_zeros(len(chosen) * plan.width)
    lp, entropy = blank.index_copy(0, plan.place, flat_lp), blank.index_copy(0, plan.place, flat_entropy)
    return lp.view(-1, plan.width), entropy.view(-1, plan.width)
