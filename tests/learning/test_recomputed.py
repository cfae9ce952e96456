"""Passes whose layers are computed again on the way back: the same numbers, less kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from keepworth.models.adapter import attach_lora, unfreeze
from keepworth.models.attention import Tree, tree
from keepworth.models.inprocess import DTYPES, InProcessModel, Precision
from keepworth.training.recomputed import estimate_recomputed_share, layers_of, recomputed_pass
from tests.learning.turns import same
from tests.models.test_families import BY_CONFIG, loaded
from tests.models.tiny import tiny_model

BATCH = tree(
    [tuple(b"where does ana live?"), tuple(b"hi")], [[tuple(b"in oslo"), tuple(b"in bergen")], [tuple(b"yes")]]
)


def disturb(named: dict[str, Any]) -> None:
    """B = 0 would leave A without a gradient."""
    for name, value in named.items():
        torch.nn.init.normal_(value.data, std=0.1, generator=torch.Generator().manual_seed(len(name)))


def gradients(model: InProcessModel, named: Any, again: bool, batch: Tree = BATCH) -> dict[str, torch.Tensor]:
    with recomputed_pass(model.network) if again else torch.enable_grad():
        lp, entropy = model.tree_scores(batch, 0.7)
        (lp.sum() + entropy.square().sum()).backward()
    found = {name: value.grad for name, value in named.items()}
    for value in named.values():
        value.grad = None
    return found


@pytest.mark.parametrize("adapter", [True, False])
@pytest.mark.parametrize("precision", ["bf16", "fp32", "fp64"])
def test_gradients_are_the_same_bits(adapter: bool, precision: Precision) -> None:
    model = tiny_model(precision=precision)
    assert model.dtype is DTYPES[precision]
    named = attach_lora(model, 4) if adapter else unfreeze(model)
    if adapter:
        disturb(named)
    plain, again = gradients(model, named, again=False), gradients(model, named, again=True)
    assert all(value.any() for value in plain.values())
    assert same(plain, again)


def test_layers_are_computed_again_and_left_as_they_were() -> None:
    model = tiny_model()
    named = unfreeze(model)
    calls: list[int] = []
    for layer in layers_of(model.network):
        layer.mlp.register_forward_pre_hook(lambda *_: calls.append(1))
    gradients(model, named, again=False)
    assert len(calls) == 2
    gradients(model, named, again=True)
    assert len(calls) == 2 + 4
    assert not any("forward" in vars(layer) for layer in layers_of(model.network))
    with recomputed_pass(model.network), torch.no_grad():
        model.tree_scores(BATCH)
    assert len(calls) == 2 + 4 + 2


def test_a_family_with_windows_is_recomputed_alike(tmp_path: Path) -> None:
    model, _ = loaded(tmp_path, BY_CONFIG["Gemma3Text"])
    named = attach_lora(model, 2)
    disturb(named)
    batch = tree([tuple(range(3, 20))], [[(4, 5, 6, 7), (8, 9)]])
    plain, again = gradients(model, named, again=False, batch=batch), gradients(model, named, again=True, batch=batch)
    assert same(plain, again)
    assert 0 < estimate_recomputed_share(model.network) < 1
