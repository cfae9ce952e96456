"""How a network is computed: as a tree of branches, or, where that is not exact, each branch as a text of its own.

A tree is exact for plain attention, also with a window or a cap on its scores. A network that does something else (a state
that is carried from token to token, positions in the scores, sinks) computes each text itself, with its own attention and
its own cache. The prompt is then computed again for each branch.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from keepworth.episodes.needs import needs_llm

import torch

from keepworth.models.attention import layout_of, micro_batches


@dataclass(frozen=True, slots=True)
class Way:
    """reason: why branches are computed one at a time; "" where they are computed as a tree. own_head: what the network does
    behind its `lm_head` (a cap, a scale) is done, too. modules: each token that is drawn goes through the network's own modules
    (see `keepworth.models.decoding_step`)."""

    reason: str = ""
    own_head: bool = False
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
    """Return the texts of a `keepworth.models.attention.Tree`: one for each branch, and one for a prompt without any.

    Without a mask each row is one."""
    rows, width = positions.shape
    layout = layout_of(mask)
    if mask is None or layout is None:
        return [Text(row, torch.arange(width), 0) for row in range(rows)]
    start = width - mask.shape[2]
    texts = []
    for row, (length, branches) in enumerate(zip(layout.lengths, layout.branches, strict=True)):
        prompt = torch.arange(length)
        texts += [
            Text(row, torch.cat([prompt, torch.arange(start + first, start + past)]), length if index else 0)
            for index, (first, past) in enumerate(branches)
        ] or [Text(row, prompt, 0)]
    return texts


def hidden_states(
    decoder: Any, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor | None, token_budget: int
) -> torch.Tensor:
    """[B, L, H] of token ids [B, L], as the network itself computes each text; zero in padding. Differentiable.

    token_budget: padded tokens of one of its passes."""
    texts = texts_of(positions, mask)
    parts, places = [], []
    for indices in micro_batches([len(text.columns) for text in texts], token_budget):
        some = [texts[index] for index in indices]
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


# Sampling: what the network itself keeps of texts that it goes on with.


class Carried:
    """The network's own cache (keys and values, windows of them, states) of some texts of one length, one row each."""

    def __init__(self) -> None:
        self._given: dict[str, Any] = {}
        self._length = 0
        self._device = torch.device("cpu")

    def read(self, decoder: Any, ids: torch.Tensor) -> torch.Tensor:
        """Hidden states [R, L, H] of the next tokens [R, L] of each row."""
        given, device = dict(self._given), decoder_device(decoder)
        self._device = device
        if "position_ids" in inspect.signature(decoder.forward).parameters:
            given["position_ids"] = torch.arange(self._length, self._length + ids.shape[1], device=device)[None]
        self._length += ids.shape[1]
        output = decoder(input_ids=ids.to(device), use_cache=True, **given)
        self._given = cache_in(output)
        hidden: torch.Tensor = output.last_hidden_state
        return hidden

    def keep(self, rows: torch.Tensor) -> None:
        """Go on with these rows [R'], in this order, of which one may be taken several times; or with those that are true."""
        rows = rows.nonzero().flatten() if rows.dtype is torch.bool else rows
        for cache in self._given.values():
            cache.reorder_cache(rows.to(self._device))


def cache_in(output: Any) -> dict[str, Any]:
    """What a decoder gave back to be called with again; nothing where that cannot be handed to other rows."""
    named = {name: output.get(name) for name in ("past_key_values", "cache_params")}
    return {name: cache for name, cache in named.items() if hasattr(cache, "reorder_cache")}


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
        if child is not None and any(module is decoder for module in child.modules())
        else child
        for name, child in module._modules.items()
    }
    return copied
