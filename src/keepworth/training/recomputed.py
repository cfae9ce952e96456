"""Gradient checkpointing: a pass keeps the input of each layer and recomputes the layer in the backward pass. It holds a fraction
of the memory and costs one more forward pass.

Source: Training Deep Nets with Sublinear Memory Cost, arXiv 1604.06174."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from keepworth.base.needs import needs_llm

import torch
from torch.utils.checkpoint import checkpoint


def layers_of(network: torch.nn.Module) -> list[torch.nn.Module]:
    """Returns the layers of a decoder, in order; an empty list where it has no list of layers."""
    layers = next((module for module in network.modules() if isinstance(module, torch.nn.ModuleList)), None)
    return [] if layers is None else list(layers)


@contextlib.contextmanager
def recomputed_pass(network: torch.nn.Module) -> Iterator[None]:
    """Encloses the forward and the backward pass of a training step.

    The pass keeps the input of each layer alone, and large tensors are allocated separately, so that it holds only what it needs.
    The numbers are the same, on processors bit for bit. Passes without a gradient, or with a cache, are unchanged."""
    layers = layers_of(network)
    before = [vars(layer).get("forward") for layer in layers]
    for layer in layers:
        layer.forward = partial(_through, layer.forward)
    try:
        with _large_tensors_apart():
            yield
    finally:
        for layer, forward_before in zip(layers, before, strict=True):
            del layer.forward
            if forward_before is not None:
                layer.forward = forward_before


def _through(forward: Callable[..., Any], *args: Any, **features: Any) -> Any:
    if not torch.is_grad_enabled() or features.get("past_key_values") is not None:
        return forward(*args, **features)
    # Nothing is drawn at random: dropout is refused.
    return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=False, **features)


_APART = 1 << 20
_USUAL = 32 << 20
_MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD of malloc.h


@contextlib.contextmanager
def _large_tensors_apart() -> Iterator[None]:
    """Makes tensors of 1 MiB and more come from the system and go back to it at once inside the block, where the C library is
    glibc.

    Tensors that are kept lie between a layer's other tensors. In glibc's heap the gaps that those leave are too small for the
    next layer's, so a pass would hold far more than it needs, above all a recomputed one. Outside, the bound is the 32 MiB to
    which glibc raises it by itself: below it, memory is reused without a system call."""
    allocate = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if allocate is None:
        yield
        return
    allocate(_MMAP_THRESHOLD, _APART)
    try:
        yield
    finally:
        allocate(_MMAP_THRESHOLD, _USUAL)


def estimate_recomputed_share(network: torch.nn.Module) -> float:
    """Returns the share of a plain pass's activations that a recomputed pass holds. These are one layer's while it is recomputed,
    and the input of each layer, which is at most a twentieth of what a layer keeps (a twenty-fifth in SmolLM2-135M)."""
    layers = len(layers_of(network))
    return min(1.0, 1 / layers + 0.05) if layers else 1.0
