"""What a network needs beside its decoder to be computed as a tree of branches: its own head, and whether tokens may go past its
modules. Decided when it is loaded (`keepworth.models.checkpoint.require_tree`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from keepworth.episodes.needs import needs_llm

import torch
from transformers.modeling_outputs import MoeModelOutputWithPast


@dataclass(frozen=True, slots=True)
class TreeFit:
    """own_head: what the network does behind its `lm_head` (a cap, a scale) is done, too. modules: each token that is drawn goes
    through the network's own modules (see `keepworth.models.decoding_step`)."""

    own_head: bool = False
    modules: bool = False


_NAME = "_keepworth_tree_fit"


def fit_of(network: Any) -> TreeFit:
    """network: the causal model itself, without an adapter around it."""
    fit: TreeFit = vars(network).get(_NAME, TreeFit())
    return fit


def set_fit(network: Any, fit: TreeFit) -> None:
    """Carried with the network, so that copies of it are computed alike."""
    vars(network)[_NAME] = fit


def decoder_of(network: Any) -> Any:
    """What gives the last hidden states, below the head; the network itself where there is no such part."""
    decoder = network.get_decoder()
    return getattr(network, "model", network) if decoder is network else decoder


class _Given(torch.nn.Module):
    """In the place of a decoder: gives back what it is given."""

    def forward(self, *args: Any, inputs_embeds: torch.Tensor, **kwargs: Any) -> MoeModelOutputWithPast:
        return MoeModelOutputWithPast(last_hidden_state=inputs_embeds)


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
