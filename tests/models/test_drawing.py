"""What is drawn from where only the likeliest tokens count."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from keepworth.episodes.model import SamplingParams
from keepworth.models.drawing import draw, likeliest


@given(
    logits=st.lists(st.lists(st.floats(-8, 8, width=32), min_size=12, max_size=12), min_size=1, max_size=4),
    top_k=st.integers(0, 14),
    top_p=st.sampled_from([0.05, 0.3, 0.5, 0.9, 0.999, 1.0]),
)
def test_what_top_k_and_top_p_leave_is_what_transformers_leaves(logits: Any, top_k: int, top_p: float) -> None:
    from transformers import TopKLogitsWarper, TopPLogitsWarper

    scores = torch.tensor(logits).round(decimals=2) + torch.arange(12) * 1e-3  # without ties: either may be taken
    theirs = TopKLogitsWarper(min(top_k, 12))(None, scores) if top_k else scores
    close = torch.softmax(theirs, -1).sort(descending=True).values.cumsum(-1) - top_p
    theirs = TopPLogitsWarper(top_p)(None, theirs) if top_p < 1 else theirs
    ours = likeliest(scores, top_k, top_p)
    if close.abs().min() > 1e-4:  # at the edge rounding decides
        assert torch.equal(ours, theirs)
    assert bool(ours.isfinite().any(-1).all())
    everywhere = torch.linspace(0, 1, 50)[:, None].expand(-1, len(logits))
    drawn, logprobs = draw(scores.expand(50, -1, -1), SamplingParams(1, top_k=top_k, top_p=top_p), everywhere)
    expected = torch.log_softmax(ours, -1).expand(50, -1, -1).gather(-1, drawn[..., None]).squeeze(-1)
    assert torch.allclose(logprobs, expected, atol=1e-5)
