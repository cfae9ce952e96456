"""How a network is computed: as a tree of branches, or, where that is not exact, each branch as a text of its own.

A tree is exact for plain attention, also with a window or a cap on its scores. A network that does something else (a state
that is carried from token to token, positions in the scores, sinks) computes each text itself, with its own attention and
its own cache. The prompt is then computed again for each branch.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from keepworth.episodes.needs import needs_llm

import torch

from keepworth.episodes.model import Tokens


@dataclass(frozen=True, slots=True)
class Way:
    """reason: why branches are computed one at a time; "" where they are computed as a tree. own_head: what the network does
    behind its `lm_head` (a cap, a scale) is done, too. pads: its sampler may put prompts of unequal length into one batch.
    rereads: it hands over no cache, so its sampler reads the whole text again for each token.
    modules: each token that is drawn goes through the network's own modules (see `keepworth.models.decoding_step`)."""

    reason: str = ""
    own_head: bool = False
    pads: bool = False
    rereads: bool = False
    modules: bool = False


_NAME = "_keepworth_way"


def way_of(network: Any) -> Way:
    """network: the causal model itself, without an adapter around it."""
    way: Way = vars(network).get(_NAME, Way())
    return way


def set_way(network: Any, way: Way) -> None:
    """Carried with the network, so that copies of it are computed alike."""
    vars(network)[_NAME] = way


def decoder_of(network: Any) -> Any:
    """What gives the last hidden states, below the head; the network itself where there is no such part."""
    found = network.get_decoder()
    return getattr(network, "model", network) if found is network else found


# Scores: the texts of a tree, a row each.
#
# Rows are padded on the right, where a causal network cannot see it: so no mask is needed, whatever the layers carry along.


@dataclass(frozen=True, slots=True)
class Text:
    """columns: of the row, in the order of the text. first: of these, how many are another text's as well, which gives them."""

    row: int
    columns: torch.Tensor
    first: int


def texts_of(positions: torch.Tensor, mask: torch.Tensor | None) -> list[Text]:
    """The texts of a batch that is laid out as a `keepworth.models.attention.Tree`: one for each branch, and one for a
    prompt without any. Without a mask each row is one."""
    rows, width = positions.shape
    if mask is None:
        return [Text(row, torch.arange(width), 0) for row in range(rows)]
    start = width - mask.shape[2]
    real = positions[:, start:] > 0  # padding stands at position 0
    own = mask[:, 0, :, start:]
    begins = real.clone()
    begins[:, 1:] &= ~own.diagonal(-1, 1, 2)
    found = []
    for row in range(rows):
        prompt = mask[row, 0, 0, :start].nonzero().flatten()
        filled = real[row].nonzero().flatten() + start
        if not len(filled):
            found.append(Text(row, prompt, 0))
            continue
        cuts = [int(c) for c in (begins[row].nonzero().flatten() + start - filled[0])[1:]]
        for index, branch in enumerate(torch.tensor_split(filled, cuts)):
            found.append(Text(row, torch.cat([prompt, branch]), len(prompt) if index else 0))
    return found


def hidden_states(
    decoder: Any, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor | None, token_budget: int
) -> torch.Tensor:
    """[B, L, H] of token ids [B, L], as the network itself computes each text; zero in padding. Differentiable.

    token_budget: padded tokens of one of its passes."""
    texts = sorted(texts_of(positions, mask), key=lambda text: -len(text.columns))
    parts, places = [], []
    for some in _batches(texts, token_budget):
        longest = len(some[0].columns)
        padded = torch.zeros(len(some), longest, dtype=torch.long)
        for index, text in enumerate(some):
            padded[index, : len(text.columns)] = ids[text.row, text.columns]
        hidden = decoder(input_ids=padded.to(decoder_device(decoder)), use_cache=False).last_hidden_state
        for index, text in enumerate(some):
            parts.append(hidden[index, text.first : len(text.columns)])
            places.append(text.row * ids.shape[1] + text.columns[text.first :])
    found = torch.cat(parts)
    blank = found.new_zeros(ids.numel(), found.shape[-1])
    return blank.index_copy(0, torch.cat(places).to(found.device), found).view(*ids.shape, -1)


def decoder_device(decoder: Any) -> torch.device:
    device: torch.device = next(decoder.parameters()).device
    return device


def _batches(texts: Sequence[Text], token_budget: int) -> list[list[Text]]:
    """texts: the longest first."""
    batches: list[list[Text]] = []
    for text in texts:
        if batches and len(batches[-1][0].columns) * (len(batches[-1]) + 1) <= token_budget:
            batches[-1].append(text)
        else:
            batches.append([text])
    return batches


# Sampling: what the network itself keeps of texts that it goes on with.


class Carried:
    """What is kept of some texts, one row each: the network's own cache (keys and values, windows of them, states), or, where
    `rereads`, their token ids."""

    def __init__(self, rereads: bool) -> None:
        self._rereads = rereads
        self._ids = torch.empty(0, 0, dtype=torch.long)
        self._given: dict[str, Any] = {}
        self._padding: torch.Tensor | None = None
        self._device = torch.device("cpu")

    def read(self, decoder: Any, ids: torch.Tensor, padding: torch.Tensor | None) -> torch.Tensor:
        """Hidden states [R, L, H] of the next tokens [R, L] of each row.

        padding: [R], how many of the first tokens are none, at the first call; None, where no row has any."""
        self._device = decoder_device(decoder)
        before = self._ids.shape[1]
        self._ids = torch.cat([self._ids, ids], 1) if before else ids
        whole = self._ids.shape[1]
        if self._rereads:
            again: torch.Tensor = decoder(input_ids=self._ids.to(self._device), use_cache=False).last_hidden_state
            return again[:, before:]
        positions = torch.arange(before, whole)[None]
        given = dict(self._given)
        if padding is not None:
            self._padding = padding
        if self._padding is not None:
            text = torch.arange(whole)[None, :] >= self._padding[:, None]
            positions = (text.long().cumsum(1) - 1).clamp(min=0)[:, before:]
            given["attention_mask"] = text.long().to(self._device)
        if "position_ids" in inspect.signature(decoder.forward).parameters:
            given["position_ids"] = positions.to(self._device)
        found = decoder(input_ids=ids.to(self._device), use_cache=True, **given)
        self._given = cache_in(found)
        hidden: torch.Tensor = found.last_hidden_state
        return hidden

    def keep(self, rows: torch.Tensor) -> None:
        """Go on with these rows [R'], in this order; a row may be taken several times."""
        self._ids = self._ids[rows]
        for cache in self._given.values():
            cache.reorder_cache(rows.to(self._device))
        if self._padding is not None:
            self._padding = self._padding[rows]


def cache_in(output: Any) -> dict[str, Any]:
    """What a decoder gave back to be called with again; nothing where that cannot be handed to other rows."""
    named = {name: output.get(name) for name in ("past_key_values", "cache_params")}
    return {name: cache for name, cache in named.items() if hasattr(cache, "reorder_cache")}


def left_padded(prompts: Sequence[Tokens]) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Token ids [R, L] and padding [R] in front of each; None, where all are of one length."""
    width = max(map(len, prompts))
    ids = torch.zeros(len(prompts), width, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.tensor(prompt)
    padding = torch.tensor([width - len(prompt) for prompt in prompts])
    return ids, padding if bool(padding.any()) else None


# The head: what the network itself makes of the last hidden states.


class _LastHidden:
    """What a decoder gives back, of which only the last hidden states are there."""

    def __init__(self, hidden: torch.Tensor) -> None:
        self.last_hidden_state = hidden

    def __getitem__(self, index: int) -> torch.Tensor:
        return (self.last_hidden_state,)[index]

    def __getattr__(self, name: str) -> None:
        return None


class _Given(torch.nn.Module):
    """In the place of a decoder: gives back what it is given."""

    def forward(self, *args: Any, inputs_embeds: torch.Tensor, **kwargs: Any) -> _LastHidden:
        return _LastHidden(inputs_embeds)


def head(network: Any, hidden: torch.Tensor) -> torch.Tensor:
    """Logits [..., V] of last hidden states [..., H], by the forward pass of the network itself behind its decoder.

    That pass is run on a copy of the module whose decoder hands the hidden states over; the weights are the same."""
    copied = _without_decoder(network, decoder_of(network))
    rows = hidden.reshape(1, -1, hidden.shape[-1])
    logits: torch.Tensor = copied(inputs_embeds=rows, use_cache=False).logits
    return logits.view(*hidden.shape[:-1], -1)


def _without_decoder(module: torch.nn.Module, decoder: torch.nn.Module) -> torch.nn.Module:
    if module is decoder:
        return _Given()
    copied = module.__class__.__new__(module.__class__)
    vars(copied).update(vars(module))
    vars(copied)["_modules"] = {
        name: _without_decoder(child, decoder)
        if child is not None and any(each is decoder for each in child.modules())
        else child
        for name, child in module._modules.items()
    }
    return copied
