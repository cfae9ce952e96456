"""Forward and backward passes over the rows of a step: how rows are divided into passes, and the scores that a pass computes.

Every shared context is computed once, and scores are taken only where a token was drawn."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Literal

from keepworth.base.needs import needs_train

import torch

from keepworth.base.errors import KeepworthError
from keepworth.models.attention import Tree, pad_lengths, round_up, tree
from keepworth.models.inprocess import InProcessModel
from keepworth.training.recomputed import recomputed_pass
from keepworth.training.rows import Rows, Texts
from keepworth.training.shares import Shares


class BudgetTooSmall(KeepworthError, ValueError):
    """One answer and its prompt are larger than the token_budget."""


Checkpointing = Literal["auto", "on", "off"]
RECOMPUTED_COST = 1.4
"""Time of a recomputed pass in that of a plain one: its forward half is computed twice."""


@dataclass(frozen=True, slots=True)
class PassRoom:
    """The most that one forward and backward pass may hold: the activations of `token_budget` padded tokens.

    Attributes:
        checkpointing: "on" recomputes every pass (gradient checkpointing), "off" none, "auto" those that do not fit otherwise and
            those that save time because prompts are computed less often.
        recomputed: The share of a token's activations that a recomputed pass holds.
    """

    token_budget: int
    checkpointing: Checkpointing = "off"
    recomputed: float = 1.0

    def fits(self, prompts: int, prompt: int, branches: int, recompute: bool) -> bool:
        """Whether prompts with their answers fit into one pass once they are padded.

        Args:
            prompts: The number of prompts.
            prompt: The tokens of the longest prompt.
            branches: The most tokens that all answers of one prompt have together.
            recompute: Whether the pass is computed again on the way back, so that it holds less.
        """
        tokens = prompts * sum(pad_lengths(prompt, branches))
        return (tokens * self.recomputed if recompute else tokens) <= self.token_budget

    def refusal(self, prompt: int, answer: int) -> BudgetTooSmall:
        """Makes the error for an answer and a prompt of these lengths, which do not fit."""
        recompute = self.checkpointing != "off"
        tokens = sum(pad_lengths(prompt, answer))
        needed = round_up(math.ceil(tokens * self.recomputed if recompute else tokens), 256)
        how = ", even if its layers are computed again on the way back" if recompute else ""
        fix = f"Set token_budget to {needed} or more, or make answers shorter."
        if not recompute:
            fix = f"Set checkpointing to auto, or token_budget to {needed} or more, or make answers shorter."
        return BudgetTooSmall(
            f"token_budget = {self.token_budget}, and one answer of {answer} tokens behind a prompt of {prompt} "
            f"({tokens} padded tokens) needs a budget of {needed}{how}.",
            f"{fix} A run that was stopped here continues with either.",
        )


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """The rows of one forward and backward pass, those of a prompt next to each other. `recompute` says whether the layers are
    recomputed in the backward pass."""

    rows: tuple[int, ...]
    recompute: bool = False


def micro_batches(texts: Texts, chosen: Iterable[int], room: PassRoom, least: int = 1) -> list[MicroBatch]:
    """Divides rows into micro-batches that fit, largest first. Raises BudgetTooSmall for a row that does not fit alone.

    Rows of one prompt stay together, so that the prompt is computed once. Where they do not fit together, either they are
    split and each part computes the prompt again, or their layers are recomputed, whichever is less work.

    Args:
        texts: The prompts and the answers of all rows.
        chosen: The indices of the rows.
        room: The most that one pass may hold.
        least: The largest micro-batches are split further until there are so many, one for each learner, where there are
            enough rows.
    """
    units: list[_Part] = []
    for prompt, members in texts.by_context(chosen).items():
        units.extend(_parts(len(prompt), {row: len(texts.answers[row]) for row in members}, room))
    batches: list[list[_Part]] = []
    for unit in sorted(units, key=lambda unit: -(unit.prompt + unit.branches)):
        if batches and batches[-1][0].recompute == unit.recompute:
            together = [*batches[-1], unit]
            widest = max(candidate.prompt for candidate in together), max(candidate.branches for candidate in together)
            if room.fits(len(together), *widest, unit.recompute):
                batches[-1] = together
                continue
        batches.append([unit])
    micro = [MicroBatch(tuple(row for unit in batch for row in unit.rows), batch[0].recompute) for batch in batches]
    while len(micro) < least and (divisible := [candidate for candidate in micro if len(candidate.rows) > 1]):
        largest = max(divisible, key=lambda candidate: work(texts, candidate))
        index = micro.index(largest)
        micro[index : index + 1] = _halves(texts, largest, room)
    return micro


def work(texts: Texts, part: MicroBatch) -> float:
    """Returns how much a pass over `part` computes, in padded tokens of a plain pass."""
    prompts, prompt, branches = _widths(texts, part.rows)
    return prompts * (prompt + branches) * (RECOMPUTED_COST if part.recompute else 1.0)


@dataclass(frozen=True, slots=True)
class Passes:
    """The passes of one learner. Each holds at most `room`; `shares` is its share of an update that several learners make
    together."""

    model: InProcessModel
    room: PassRoom = PassRoom(2048)
    shares: Shares = field(default_factory=Shares)

    def split(self, texts: Texts, chosen: Iterable[int]) -> list[MicroBatch]:
        """Divides the rows into micro-batches, the same for every learner: see `micro_batches`."""
        return micro_batches(texts, chosen, self.room, self.shares.count)

    def pick(self, texts: Texts, parts: Sequence[MicroBatch]) -> list[tuple[int, MicroBatch]]:
        """Returns this learner's share of the parts, with their numbers."""
        if self.shares.count == 1:
            return list(enumerate(parts))
        return [(number, parts[number]) for number in self.shares.pick([work(texts, part) for part in parts])]

    def training(self, texts: Texts, parts: Sequence[MicroBatch]) -> Iterator[tuple[int, MicroBatch]]:
        """Yields the parts of `pick`. The caller computes the forward and the backward pass of each before it asks for the next:
        a `recomputed_pass` encloses those of a part that is recomputed."""
        for number, part in self.pick(texts, parts):
            with recomputed_pass(self.model.network) if part.recompute else nullcontext():
                yield number, part

    @torch.no_grad()
    def scores(
        self, rows: Rows, temperature: float, chosen: Iterable[int] | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns log-probabilities and entropies, [B, T], under the current weights, joined over all learners; zero for rows
        that are not chosen.

        Args:
            rows: The rows of the update.
            temperature: The logits are divided by it before the softmax.
            chosen: The indices of the rows that are scored; None scores all.
        """
        parts = self.split(rows, range(rows.batch.shape[0]) if chosen is None else chosen)
        wide = torch.promote_types(self.model.dtype, torch.float32)
        scores, entropies = (torch.zeros(rows.batch.shape, dtype=wide) for _ in range(2))
        for _, part in self.pick(rows, parts):
            indices = torch.tensor(part.rows)
            scores[indices], entropies[indices] = row_scores(self.model, rows, part.rows, temperature)
        scores, entropies = self.shares.joined(scores, entropies)
        return scores, entropies


def _widths(texts: Texts, rows: Sequence[int]) -> tuple[int, int, int]:
    """Returns how many prompts there are, and the padded widths of the longest prompt and of the longest answers to one."""
    shared = texts.by_context(rows)
    longest = max(sum(map(len, branches)) for branches in texts.branches(shared))
    return len(shared), *pad_lengths(max(map(len, shared)), longest)


def _halves(texts: Texts, part: MicroBatch, room: PassRoom) -> list[MicroBatch]:
    """Splits a part in two such that the larger one is as little work as possible. Halves that fit are not recomputed."""

    def of(rows: tuple[int, ...]) -> MicroBatch:
        fits = room.checkpointing != "on" and room.fits(*_widths(texts, rows), recompute=False)
        return MicroBatch(rows, part.recompute and not fits)

    ways = [[of(part.rows[:cut]), of(part.rows[cut:])] for cut in range(1, len(part.rows))]
    return min(ways, key=lambda way: max(work(texts, half) for half in way))


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows that share a prompt, as one row of a tree, with its padded widths."""

    rows: tuple[int, ...]
    prompt: int
    branches: int
    recompute: bool


def _parts(prompt: int, lengths: Mapping[int, int], room: PassRoom) -> list[_Part]:
    """Divides the rows of one prompt into the plain or recomputed passes that cost least time. `prompt` is the length of the
    prompt, `lengths` those of the answers, by row."""
    whole = pad_lengths(prompt, sum(lengths.values()))
    if room.checkpointing != "on" and room.fits(1, *whole, False):
        return [_Part(tuple(lengths), *whole, False)]
    ways: list[list[_Part]] = []
    if room.checkpointing != "on":
        short = {row: length for row, length in lengths.items() if room.fits(1, prompt, length, False)}
        long = {row: length for row, length in lengths.items() if row not in short}
        ways.append([*_packed(prompt, short, room, False), *_packed(prompt, long, room, room.checkpointing != "off")])
    if room.checkpointing != "off" and (not ways or len(ways[0]) > 1):
        ways.append(_packed(prompt, lengths, room, True))
    costs = [
        sum((part.prompt + part.branches) * (RECOMPUTED_COST if part.recompute else 1) for part in way) for way in ways
    ]
    return ways[costs.index(min(costs))]


def _packed(prompt: int, lengths: Mapping[int, int], room: PassRoom, recompute: bool) -> list[_Part]:
    """Packs the rows into parts that fit, longest first; into one part, in their order, where all fit."""
    bins: list[list[int]] = []
    for row in sorted(lengths, key=lambda row: -lengths[row]):
        if not room.fits(1, prompt, lengths[row], recompute):
            raise room.refusal(prompt, lengths[row])
        for rows in bins:
            if room.fits(1, prompt, sum(lengths[other] for other in (*rows, row)), recompute):
                rows.append(row)
                break
        else:
            bins.append([row])
    widths = [pad_lengths(prompt, sum(lengths[row] for row in rows)) for rows in bins]
    return [
        _Part(tuple(row for row in lengths if row in rows), *width, recompute)
        for rows, width in zip(bins, widths, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class BranchLayout:
    """The chosen rows as branches of their contexts in a tree.

    Attributes:
        tree: The tree, whose targets are the N drawn tokens.
        place: [N], the position of each target in the flattened [len(chosen), width].
        behind: [N], the flat column of each target.
        last: [len(chosen)], the flat column of each row's last token.
    """

    tree: Tree
    place: torch.Tensor
    behind: torch.Tensor
    last: torch.Tensor
    width: int


def layout(rows: Rows, chosen: Sequence[int]) -> BranchLayout:
    shared = rows.by_context(chosen)
    whole = tree(list(shared), rows.branches(shared))
    at = {row: position for position, row in enumerate(chosen)}
    columns, first = whole.ids.shape[1], whole.ids.shape[1] - whole.mask.shape[2]
    width = rows.batch.shape[1]
    order: list[int] = []
    starts: list[int] = []
    last = torch.empty(len(chosen), dtype=torch.long)
    for number, members in enumerate(shared.values()):
        column = number * columns + first  # branches stand one after the other behind the padded prompt
        for row in members:
            starts.append(column)
            column += len(rows.answers[row])
            last[at[row]] = column - 1
            order.append(row)
    lengths = torch.tensor([len(rows.answers[row]) for row in order])
    rows_of_tokens = torch.repeat_interleave(torch.tensor(order), lengths)
    column_of = torch.cat([torch.arange(int(length)) for length in lengths])
    drawn = rows.batch.mask[rows_of_tokens, column_of] > 0
    cell = torch.repeat_interleave(torch.tensor([at[row] for row in order]), lengths) * width + column_of
    picked = replace(whole, predictor=whole.predictor[drawn], target=whole.target[drawn])
    behind = torch.repeat_interleave(torch.tensor(starts), lengths) + column_of
    return BranchLayout(picked, cell[drawn], behind[drawn], last, width)


def row_scores(
    model: InProcessModel, rows: Rows, chosen: Sequence[int], temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns log-probabilities and entropies, [len(chosen), T], of the chosen rows; zero where nothing was drawn. Both are of
    the distribution that each token was drawn from: where a grammar bound it, that of the ids which the grammar allowed.

    Args:
        model: The model that scores them.
        rows: The rows of the update.
        chosen: The indices of the rows, which are scored in one pass.
        temperature: The logits are divided by it before the softmax.
    """
    plan = layout(rows, chosen)
    flat_lp, flat_entropy = model.tree_scores(plan.tree, temperature, allowed_ids(model, rows, chosen, plan))
    blank = flat_lp.new_zeros(len(chosen) * plan.width)
    lp, entropy = blank.index_copy(0, plan.place, flat_lp), blank.index_copy(0, plan.place, flat_entropy)
    return lp.view(-1, plan.width), entropy.view(-1, plan.width)


def allowed_ids(model: InProcessModel, rows: Rows, chosen: Sequence[int], plan: BranchLayout) -> torch.Tensor | None:
    """Returns the bits of the ids that each target of the tree was drawn from, int32 [N, V / 32]; None where all were drawn
    freely. They are made again from the grammars, as no row holds them.

    Args:
        model: The model, whose tokenizer the grammars are read with.
        rows: The rows of the update.
        chosen: The indices of the rows.
        plan: The places of their tokens in the tree.
    """
    if not any(rows.grammars[row] for row in chosen if rows.grammars):
        return None
    number_of = torch.full((len(chosen) * plan.width,), -1)
    number_of[plan.place] = torch.arange(len(plan.place))
    bits = torch.full((len(plan.place), model.grammar_masks.width), -1, dtype=torch.int32)
    for position, row in enumerate(chosen):
        for call in rows.grammars[row]:
            first = position * plan.width + call.start
            masks = torch.from_numpy(model.grammar_masks.of(call.grammar, call.ids))
            bits[number_of[first : first + len(call.ids)]] = masks
    return bits
