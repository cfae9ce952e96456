"""The tree batcher: one row per prompt, the group's answers as branches of it.

The prompt is computed and read once for the whole group. Columns of a row are `[prompt, padded to P | branches one
after the other, padded to S]`. A branch token sees its prompt and the earlier tokens of its own branch; its position
is its depth below the prompt, so every branch is computed as if it stood alone behind the prompt.
Sampler, scorer and learner all use this layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from keepworth.episodes.extras import needs_llm

import torch

from keepworth.episodes.model import Tokens


@dataclass(frozen=True, slots=True)
class Tree:
    """A batch of B rows with N branch tokens in all.

    ids, positions: [B, P + S]. mask: bool [B, 1, S, P + S], what each branch column sees.
    predictor: [N], flat index into [B * (P + S)] of the column whose hidden state predicts each branch token.
    target: [N], the branch tokens, row by row, branch by branch. row, branch, depth: [N], where each token stands.
    """

    ids: torch.Tensor
    positions: torch.Tensor
    mask: torch.Tensor
    predictor: torch.Tensor
    target: torch.Tensor
    row: torch.Tensor
    branch: torch.Tensor
    depth: torch.Tensor


def round_up(length: int, multiple: int) -> int:
    return -(-length // multiple) * multiple


def tree(prompts: Sequence[Tokens], branches: Sequence[Sequence[Tokens]], pad_id: int = 0, multiple: int = 16) -> Tree:
    """Lay out `branches[i]` behind `prompts[i]`.

    Lengths are padded to a multiple so that matrix shapes repeat: libraries build a kernel per shape.
    Raises ValueError for an empty prompt (nothing could predict the first branch token) or for unequal counts.
    """
    if len(prompts) != len(branches):
        raise ValueError(f"{len(prompts)} prompts but {len(branches)} lists of branches")
    for index, prompt in enumerate(prompts):
        if not prompt:
            raise ValueError(f"prompt {index} is empty: the first token of its branches would have no predictor")
    rows = len(prompts)
    prompt_width = round_up(max(len(p) for p in prompts), multiple)
    branch_width = round_up(max(1, *(sum(map(len, b)) for b in branches)), multiple)
    width = prompt_width + branch_width
    ids = torch.full((rows, width), pad_id, dtype=torch.long)
    positions = torch.zeros((rows, width), dtype=torch.long)
    owner = torch.full((rows, branch_width), -1, dtype=torch.long)
    prompt_length = torch.tensor([len(p) for p in prompts])
    predictor: list[int] = []
    target: list[int] = []
    where: list[tuple[int, int, int]] = []
    for i, (prompt, own) in enumerate(zip(prompts, branches, strict=True)):
        ids[i, : len(prompt)] = torch.tensor(prompt)
        positions[i, : len(prompt)] = torch.arange(len(prompt))
        column = prompt_width
        for j, branch in enumerate(own):
            if not branch:
                continue
            end = column + len(branch)
            ids[i, column:end] = torch.tensor(branch)
            positions[i, column:end] = torch.arange(len(prompt), len(prompt) + len(branch))
            owner[i, column - prompt_width : end - prompt_width] = j
            predictor.append(i * width + len(prompt) - 1)
            predictor.extend(i * width + c for c in range(column, end - 1))
            target.extend(branch)
            where.extend((i, j, d) for d in range(len(branch)))
            column = end
    row, branch_index, depth = torch.tensor(where, dtype=torch.long).reshape(-1, 3).unbind(1)
    return Tree(
        ids=ids,
        positions=positions,
        mask=branch_mask(prompt_length, prompt_width, owner),
        predictor=torch.tensor(predictor, dtype=torch.long),
        target=torch.tensor(target, dtype=torch.long),
        row=row,
        branch=branch_index,
        depth=depth,
    )


def branch_mask(
    prompt_length: torch.Tensor, prompt_width: int, owner: torch.Tensor, last: int | None = None
) -> torch.Tensor:
    """bool [B, 1, S, prompt_width + S] from the prompts' lengths [B] and the branch that owns each column [B, S].

    Padding columns (owner -1) see the prompt and each other, so that no softmax is over nothing; nothing sees them.
    last: only the mask of this many last columns, which is all that a sampling step asks for.
    """
    rows, width = owner.shape
    first = 0 if last is None else width - last
    past = torch.arange(width)[None, :] <= torch.arange(first, width)[:, None]
    own = (owner[:, first:, None] == owner[:, None, :]) & past
    prompt = torch.arange(prompt_width)[None, :] < prompt_length[:, None]
    return torch.cat([prompt[:, None, :].expand(rows, width - first, prompt_width), own], dim=2)[:, None]


def apart(prompt: int, branches: int, tokens: int) -> bool:
    """Whether a sampler should give each branch a row of its own instead of a place in its prompt's tree.

    A tree reads the prompt's keys once for all branches, but each branch is multiplied with its siblings' keys too.
    prompt, tokens: lengths of the prompt and of a branch at its end. The rule is read off measurements
    (`python -m benchmarks.speed.run --only branches`).
    """
    return branches > 1 and tokens > APART_TOKENS + APART_SHARE * prompt


APART_TOKENS, APART_SHARE = 40, 0.85
"""Eight branches of SmolLM2-135M on two cores broke even near 120 tokens behind a prompt of 100 and 370 behind 400."""


def per_branch(
    values: Sequence[float], prompts: Sequence[Tokens], branches: Sequence[Sequence[Tokens]]
) -> list[list[tuple[float, ...]]]:
    """Fold N per-token values, in `Tree.target` order, back into the shape of `branches`."""
    remaining = iter(values)
    return [[tuple(next(remaining) for _ in branch) for branch in own] for own in branches]


def micro_batches(
    prompts: Sequence[Tokens], branches: Sequence[Sequence[Tokens]], token_budget: int
) -> list[list[int]]:
    """Indices of rows, grouped so that no group's padded tokens exceed the budget (a longer row goes alone).

    Rows of like length go together, longest first: the largest allocation happens at once, not in the middle.
    """
    sizes = [len(p) + sum(map(len, b)) for p, b in zip(prompts, branches, strict=True)]
    order = sorted(range(len(sizes)), key=lambda i: (-sizes[i], i))
    groups: list[list[int]] = []
    for index in order:
        if groups and sizes[groups[-1][0]] * (len(groups[-1]) + 1) <= token_budget:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups
