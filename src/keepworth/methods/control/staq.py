"""StaQ: chooses by the critics of its last updates, in closed form, and has no actor that learns.

The policy is `keepworth.control.critics.StackedCritics`, which has its formula; the critics are learned as those of SAC."""

from __future__ import annotations

from functools import partial

from keepworth.methods.control.recurrent_off_policy import make
from keepworth.registry import Method

METHOD = Method(
    kind="control_agent",
    name="staq",
    title="StaQ",
    about="Chooses by a discounted sum of its last M value functions instead of learning an actor",
    paper="arXiv 2506.13862",
    claim="With M large enough the update of the policy has no error, and returns oscillate less than with the last Q alone.",
    differs="Each kept critic has its memory, whose state was made by the critic before while an episode goes on.",
    make=partial(make, learner="staq"),
    extra="control",
)
