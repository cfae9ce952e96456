"""How drafts are drawn to their end: `ContinuousBatch`, one token a step for sequences of different ages, and `GroupBatch`,
whole calls.

In a continuous batch of `slots` sequences, one that ends leaves its slot to the next that waits, so that a long answer does
not leave the processor to itself. When new weights arrive, `interrupt` drops the keys and values of the old ones; every
unfinished sequence is read again under the new weights and goes on (interruptible generation: AReaL, arXiv 2505.24298,
section 4.1). What was drawn before keeps its log-probabilities and its version.

A draw depends on (seed, stream, position) alone: in which company a sequence is sampled changes rounding, nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from keepworth.episodes.needs import needs_llm

import numpy as np
import numpy.typing as npt
import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from keepworth.episodes.model import FinishReason, Sample, SamplingParams, Tokens, VersionSpan
from keepworth.models.attention import micro_batches, round_up, tree
from keepworth.models.errors import ContextOverflow
from keepworth.models.inprocess import InProcessModel, buffer_cache, draw

_SORT_EVERY = 8
"""Steps between looks at which sequences are long."""


@dataclass(slots=True, eq=False)
class PartialSample:
    """A sample in the making: all that is needed to go on with it here or in another process.

    stream: what its draws are seeded with beside `params.seed`; (prompt index, sample index) draws what
    `InProcessModel.sample` draws. group: index of the group it is sampled for. spans: of the tokens drawn under weights that
    have been replaced since.
    """

    prompt: Tokens
    params: SamplingParams
    stream: tuple[int, ...]
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    spans: list[VersionSpan] = field(default_factory=list)
    finish: FinishReason | None = None
    group: int = 0
    _draws: npt.NDArray[np.float64] | None = None

    def uniform(self) -> float:
        return float(self.draws()[0])

    def draws(self) -> npt.NDArray[np.float64]:
        """Numbers in [0, 1) at which its next tokens are drawn, one for each that it may still have."""
        if self._draws is None:
            generator = np.random.default_rng((self.params.seed, *self.stream))
            self._draws = generator.random(self.params.max_tokens)
        return self._draws[len(self.ids) :]

    def close_span(self, version: int) -> None:
        """What was drawn since the last span was drawn under `version`."""
        start = self.spans[-1].end if self.spans else 0
        if len(self.ids) > start:
            self.spans.append(VersionSpan(version, start, len(self.ids)))

    def sample(self, version: int) -> Sample:
        """What has been drawn so far; ABORTED where it has not ended."""
        start = self.spans[-1].end if self.spans else 0
        last = (VersionSpan(version, start, len(self.ids)),) if len(self.ids) > start else ()
        return Sample(tuple(self.ids), tuple(self.logprobs), self.finish or FinishReason.ABORTED, (*self.spans, *last))


def require_room(model: InProcessModel, draft: PartialSample) -> None:
    """Raises ContextOverflow where a draft could outgrow the model's window, ValueError where it asks for nothing."""
    if not draft.prompt or draft.params.max_tokens < 1 or draft.params.n != 1:
        raise ValueError("a draft continues a prompt of at least one token, by one sample of at least one token")
    if len(draft.prompt) + draft.params.max_tokens > model.context_limit:
        raise ContextOverflow(
            f"A prompt has {len(draft.prompt)} tokens and may grow by {draft.params.max_tokens}, past the "
            f"{model.context_limit} that {model.name} reads.",
            "Show fewer or shorter memories.",
        )


class ContinuousBatch:
    """Drafts in, finished drafts out, one token each per `step`.

    slots: sequences decoded together; it bounds memory, not what may wait. refill: free slots are filled when there are
    at least this many (or nothing else to do): reading prompts one at a time costs a pass over the weights each.
    order: which draft goes first where several wait, the smallest key; as they came where None.
    """

    def __init__(
        self,
        model: InProcessModel,
        slots: int = 32,
        *,
        refill: int = 1,
        order: Callable[[PartialSample], Any] | None = None,
    ) -> None:
        if slots < 1 or not 1 <= refill <= slots:
            raise ValueError(f"slots must be at least 1 and refill between 1 and slots, not {slots} and {refill}")
        self.model = model
        self.slots = slots
        self.refill = refill
        self.order = order
        self.live: list[PartialSample] = []
        self.waiting: list[PartialSample] = []
        self.steps = 0
        self._cache = Slots(model.network.config.num_hidden_layers, slots)
        self._hidden: torch.Tensor | None = None
        self._prompts: dict[Tokens, ReadPrompt] = {}
        self._unsorted = 0

    def add(self, draft: PartialSample) -> None:
        """Raises ContextOverflow where it could outgrow the model's window, ValueError where it asks for nothing."""
        require_room(self.model, draft)
        self.waiting.append(draft)

    @torch.inference_mode()
    def remove(self, draft: PartialSample) -> None:
        """Forget a draft, wherever it is; one that has ended or was never added is no error."""
        if draft in self.waiting:
            self.waiting.remove(draft)
        elif draft in self.live:
            self._leave([self.live.index(draft)])

    @property
    def busy(self) -> bool:
        return bool(self.live or self.waiting)

    def unfinished(self) -> int:
        """Tokens of drafts that have not ended."""
        return sum(len(each.ids) for each in (*self.live, *self.waiting))

    def interrupt(self, *, keep: bool = False) -> None:
        """Call before the weights change: what is unfinished will be read again, first of all, under the new ones.

        keep: live sequences keep the keys and values of the old weights instead (in-flight updates: PipelineRL, arXiv
        2509.19128). Nothing is read twice; what is drawn from here on has the log-probabilities it was drawn with, but no
        single set of weights would give them again."""
        for draft in (*self.live, *self.waiting):
            draft.close_span(self.model.version)
        if keep:
            self._prompts.clear()
            return
        self.waiting = [*self.live, *self.waiting]
        self.live = []
        self._prompts.clear()

    @torch.inference_mode()
    def step(self) -> list[PartialSample]:
        """One token for every live sequence, after free slots are filled; returns the drafts that ended."""
        free = self.slots - len(self.live)
        if self.waiting and (free >= self.refill or not self.live):
            self._fill(free)
        if not self.live:
            return []
        self.steps += 1
        assert self._hidden is not None
        logits = self.model.head(self._hidden[: len(self.live)])
        for temperature in dict.fromkeys(each.params.temperature for each in self.live):
            rows = [i for i, each in enumerate(self.live) if each.params.temperature == temperature]
            self._draw(logits if len(rows) == len(self.live) else logits[rows], rows, temperature)
        ended = [i for i, each in enumerate(self.live) if each.finish is not None]
        finished = [self.live[i] for i in ended]
        for each in finished:
            each.close_span(self.model.version)
        self._leave(ended)
        if self.live:
            self._advance()
        return finished

    def _draw(self, logits: torch.Tensor, rows: Sequence[int], temperature: float) -> None:
        drafts = [self.live[i] for i in rows]
        uniform = None if temperature == 0 else torch.tensor([each.uniform() for each in drafts], dtype=torch.float64)
        tokens, logprobs = draw(logits, temperature, uniform)
        for each, token, logprob in zip(drafts, tokens.tolist(), logprobs.tolist(), strict=True):
            each.ids.append(token)
            each.logprobs.append(logprob)
            if token in each.params.stop_ids:
                each.finish = FinishReason.STOP
            elif len(each.ids) == each.params.max_tokens:
                each.finish = FinishReason.LENGTH

    def _advance(self) -> None:
        count = len(self.live)
        if self._unsorted >= _SORT_EVERY:
            self._longest_first()
        last = torch.tensor([[each.ids[-1]] for each in self.live])
        self._unsorted += 1
        positions, mask = self._cache.extend(count)
        widths = row_widths([len(each.prompt) + len(each.ids) for each in self.live])
        stretches = {"row_widths": widths} if widths else {}
        hidden = self.model.hidden_states(last, positions, mask, self._cache.layers, **stretches)
        assert self._hidden is not None
        self._hidden[:count] = hidden[:, 0]

    def _leave(self, rows: Sequence[int]) -> None:
        """Free these slots; live sequences stay in the first ones, so the last takes the place of one that left."""
        for row in sorted(rows, reverse=True):
            last = len(self.live) - 1
            if row != last:
                self.live[row] = self.live[last]
                self._cache.move(last, row)
                assert self._hidden is not None
                self._hidden[row] = self._hidden[last]
            self.live.pop()

    def _longest_first(self) -> None:
        """Bring the few long sequences to the front, so that the others need not read as far as they do.

        Whether, and what, depends on what has been filled and drawn since the last interruption alone: so that a run that
        goes on after one draws in the same company, in the same places."""
        self._unsorted = 0
        for row, other in misplaced([len(each.prompt) + len(each.ids) for each in self.live]):
            self.live[row], self.live[other] = self.live[other], self.live[row]
            self._cache.exchange(row, other)
            assert self._hidden is not None
            self._hidden[[row, other]] = self._hidden[[other, row]]

    def _fill(self, free: int) -> None:
        if self.order is not None:
            self.waiting.sort(key=self.order)  # stable: equal keys stay as they came
        chosen, self.waiting = self.waiting[:free], self.waiting[free:]
        first = len(self.live)
        self._unsorted = _SORT_EVERY
        self.live += chosen
        by_prompt: dict[Tokens, list[int]] = {}
        for row, draft in enumerate(chosen, start=first):
            if not draft.ids and draft.prompt in self._prompts:
                self._copy(row, self._prompts[draft.prompt])
            else:
                by_prompt.setdefault(draft.prompt, []).append(row)
        prompts, members = list(by_prompt), list(by_prompt.values())
        branches = [[tuple(self.live[row].ids) for row in rows] for rows in members]
        expected = {draft.prompt for draft in self.waiting if not draft.ids}
        for index in micro_batches(prompts, branches, self.model.token_budget):
            self._read([prompts[i] for i in index], [branches[i] for i in index], [members[i] for i in index], expected)
        self._prompts = {prompt: kept for prompt, kept in self._prompts.items() if prompt in expected}

    def _copy(self, row: int, prompt: ReadPrompt) -> None:
        assert self._hidden is not None
        self._hidden[row] = prompt.hidden
        self._cache.put_prompt(row, prompt)

    def _read(
        self,
        prompts: Sequence[Tokens],
        branches: Sequence[Sequence[Tokens]],
        members: Sequence[Sequence[int]],
        expected: Collection[Tokens],
    ) -> None:
        """Prompts, each once, with what was drawn behind them; keys, values and last hidden states go to the slots.

        expected: prompts of drafts that still wait for a slot: theirs are kept, to be copied and not read again."""
        batch = tree(prompts, branches)
        cache = buffer_cache(self.model.network.config.num_hidden_layers, batch.ids.shape[1])
        hidden = self.model.hidden_states(batch.ids, batch.positions, batch.mask, cache)
        if self._hidden is None:
            self._hidden = hidden.new_zeros(self.slots, hidden.shape[-1])
        prompt_width = batch.ids.shape[1] - batch.mask.shape[2]
        for i, (prompt, own, rows) in enumerate(zip(prompts, branches, members, strict=True)):
            if prompt in expected:
                keys = [layer.keys[i, :, : len(prompt)].clone() for layer in cache.layers]
                values = [layer.values[i, :, : len(prompt)].clone() for layer in cache.layers]
                self._prompts[prompt] = ReadPrompt(hidden[i, len(prompt) - 1].clone(), keys, values)
            column = prompt_width
            for row, drawn in zip(rows, own, strict=True):
                end = column + len(drawn)
                self._hidden[row] = hidden[i, end - 1 if drawn else len(prompt) - 1]
                self._cache.put(row, cache, i, len(prompt), column, end)
                column = end


# Slots: keys and values of sequences of different ages, one row each, and how far each row has to be read.
#
# One long sequence among many short ones would make all of them read as far as it does. So the long ones are kept in front,
# and attention reads the rows behind them in a stretch of their own.


@dataclass(frozen=True, slots=True)
class ReadPrompt:
    """A prompt that was read: its last hidden state [H], keys and values [KV, P, D] by layer."""

    hidden: torch.Tensor
    keys: list[torch.Tensor]
    values: list[torch.Tensor]


class Slots:
    """Keys and values of the live sequences, one row each, filled from the left to lengths of their own."""

    def __init__(self, layers: int, slots: int) -> None:
        self.lengths = torch.zeros(slots, dtype=torch.long)
        self.rows = torch.arange(slots)
        self.layers = Cache(layers=[SlotLayer(slots) for _ in range(layers)])

    def extend(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Make room for one token in each of the first `count` rows; their positions [count, 1] and mask [count, 1, 1, K]."""
        where = self.lengths[:count].clone()
        longest = int(where.max()) + 1
        for layer in self.layers.layers:
            layer.begin(self.rows[:count], where, longest)
        self.lengths[:count] += 1
        mask = torch.arange(longest)[None, :] <= where[:, None]
        return where[:, None], mask[:, None, None]

    def put(self, row: int, source: Any, index: int, prompt: int, start: int, end: int) -> None:
        """A row from columns [0, prompt) and [start, end) of row `index` of another cache."""
        length = prompt + end - start
        self.lengths[row] = length
        for layer, other in zip(self.layers.layers, source.layers, strict=True):
            layer.reserve(length, other.keys, other.values)
            layer.keys[row, :, :prompt] = other.keys[index, :, :prompt]
            layer.values[row, :, :prompt] = other.values[index, :, :prompt]
            layer.keys[row, :, prompt:length] = other.keys[index, :, start:end]
            layer.values[row, :, prompt:length] = other.values[index, :, start:end]

    def put_prompt(self, row: int, prompt: ReadPrompt) -> None:
        length = prompt.keys[0].shape[1]
        self.lengths[row] = length
        for layer, keys, values in zip(self.layers.layers, prompt.keys, prompt.values, strict=True):
            layer.reserve(length, keys[None], values[None])
            layer.keys[row, :, :length] = keys
            layer.values[row, :, :length] = values

    def exchange(self, one: int, other: int) -> None:
        length = int(torch.maximum(self.lengths[one], self.lengths[other]))
        rows, swapped = [one, other], [other, one]
        self.lengths[rows] = self.lengths[swapped]
        for layer in self.layers.layers:
            layer.keys[rows, :, :length] = layer.keys[swapped, :, :length]
            layer.values[rows, :, :length] = layer.values[swapped, :, :length]

    def move(self, source: int, target: int) -> None:
        length = int(self.lengths[source])
        self.lengths[target] = length
        for layer in self.layers.layers:
            layer.keys[target, :, :length] = layer.keys[source, :, :length]
            layer.values[target, :, :length] = layer.values[source, :, :length]


_WORTH = 0.8
"""Two stretches of rows are two products: they have to read less than this share of what one would."""


_FEW = 16
"""Below so many sequences, looking costs more than it could save."""


def row_widths(lengths: Sequence[int]) -> tuple[tuple[int, int, int], ...]:
    """Rows of these lengths in one stretch, (first, past the last, longest), or in two where those behind some point are
    enough shorter; nothing where there are few."""
    if len(lengths) < _FEW:
        return ()
    rear = list(accumulate(reversed(lengths), max))[::-1]  # the longest from each row on
    split = _split(rear)
    return ((0, split, rear[0]), (split, len(lengths), rear[split])) if split else ()


def misplaced(lengths: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs of rows to exchange, so that the longest stand in front of where it is worth a second stretch."""
    if len(lengths) < _FEW:
        return []
    rows = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    long = set(rows[: _split([lengths[row] for row in rows])])
    behind = sorted(row for row in long if row >= len(long))
    return list(zip(behind, [row for row in range(len(long)) if row not in long], strict=True))


def _split(rear: Sequence[int]) -> int:
    """rear: how far rows have to read from each one on, falling. After how many a second stretch should begin; 0 for none."""
    count, first = len(rear), rear[0]
    best = min(range(count), key=lambda row: row * first + (count - row) * rear[row])
    return best if best * first + (count - best) * rear[best] < _WORTH * count * first else 0


class SlotLayer(CacheLayerMixin):  # type: ignore[misc]
    """One layer's rows [slots, KV, capacity, D]; `update` writes one token per row where `begin` said."""

    def __init__(self, slots: int) -> None:
        super().__init__()
        self.slots = slots
        self.capacity = 0
        self.longest = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.is_initialized = True

    def begin(self, rows: torch.Tensor, where: torch.Tensor, longest: int) -> None:
        self.at, self.longest = (rows, where), longest
        self.reserve(longest, self.keys, self.values)

    def reserve(self, length: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Columns for `length` tokens; heads, sizes and dtype like those of `keys` and `values`."""
        if length <= self.capacity:
            return
        capacity = round_up(max(length, self.capacity + self.capacity // 2), 64)
        for name, like in (("keys", keys), ("values", values)):
            # Zeros, because what masks hide is multiplied by 0: it must not be infinite or no number.
            larger = like.new_zeros(self.slots, like.shape[1], capacity, like.shape[3])
            if self.capacity:
                larger[:, :, : self.capacity] = getattr(self, name)
            setattr(self, name, larger)
        self.capacity = capacity
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        rows, where = self.at
        self.keys[rows, :, where] = key_states[:, :, 0]
        self.values[rows, :, where] = value_states[:, :, 0]
        count = len(rows)
        return self.keys[:count, :, : self.longest], self.values[:count, :, : self.longest]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.longest, 0

    def get_seq_length(self) -> int:
        return max(0, self.longest - 1)

    def get_max_length(self) -> int:
        return self.capacity


# Whole calls at once: every draft that waits is drawn to its end, and a prompt that a group shares is read and kept once.
#
# Where everybody waits for everybody and the weights do not change meanwhile, no draft has to be parked or to make room
# for another: then this is faster than `ContinuousBatch`, which keeps a prompt's keys and values once for each sequence.


class GroupBatch:
    """Drafts in, finished drafts out, as from a `ContinuousBatch`. order: which draft comes first, the smallest key.

    A draft's draws are its own, so that it gets the same tokens from either, but for what its company does to rounding."""

    def __init__(self, model: InProcessModel, *, order: Callable[[PartialSample], Any]) -> None:
        self.model = model
        self.order = order
        self.waiting: list[PartialSample] = []
        self.steps = 0

    def add(self, draft: PartialSample) -> None:
        """Raises ContextOverflow where it could outgrow the model's window, ValueError where it asks for nothing."""
        require_room(self.model, draft)
        self.waiting.append(draft)

    def remove(self, draft: PartialSample) -> None:
        """Forget a draft; one that has ended or was never added is no error."""
        if draft in self.waiting:
            self.waiting.remove(draft)

    @property
    def busy(self) -> bool:
        return bool(self.waiting)

    def unfinished(self) -> int:
        """Tokens of drafts that have not ended."""
        return sum(len(each.ids) for each in self.waiting)

    def step(self) -> list[PartialSample]:
        """Everything that waits, drawn to its end, in as few calls of the model as the drafts' limits allow."""
        drafts, self.waiting = sorted(self.waiting, key=self.order), []
        self.steps += bool(drafts)
        by_prompt: dict[tuple[SamplingParams, int, Tokens], list[PartialSample]] = {}
        for draft in drafts:
            limits = replace(draft.params, seed=0, max_tokens=draft.params.max_tokens - len(draft.ids))
            by_prompt.setdefault((limits, draft.group, (*draft.prompt, *draft.ids)), []).append(draft)
        batches: dict[tuple[SamplingParams, int], list[tuple[Tokens, list[PartialSample]]]] = {}
        for (limits, _, prompt), own in by_prompt.items():
            batches.setdefault((limits, len(own)), []).append((prompt, own))
        for (limits, copies), entries in batches.items():
            self._draw(entries, replace(limits, n=copies))
        return drafts

    def _draw(self, entries: list[tuple[Tokens, list[PartialSample]]], params: SamplingParams) -> None:
        greedy = params.temperature == 0
        draws = None if greedy else torch.from_numpy(np.array([[each.draws() for each in own] for _, own in entries]))
        drawn = self.model.sample_at([prompt for prompt, _ in entries], params, draws)
        for (_, own), samples in zip(entries, drawn, strict=True):
            for draft, sample in zip(own, samples, strict=True):
                draft.ids += sample.ids
                draft.logprobs += sample.logprobs
                draft.finish = sample.finish
                draft.close_span(self.model.version)
