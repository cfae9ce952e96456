"""A second network for the sampler: frozen weights are shared with the learner's, trained ones are its own copy.

While the learner computes a step, its gradients and its half-made update are out of the sampler's sight. Between two
tokens `Replica.publish` copies what was trained, and proves that it arrived: a publication that silently does nothing
looks like growing staleness and nothing else.
"""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass

from keepworth.episodes.extras import needs_llm

import torch

from keepworth.episodes.model import Receipt, Tokens
from keepworth.models.adapter import Named
from keepworth.models.errors import DeliveryFailed, NothingDelivered
from keepworth.models.inprocess import InProcessModel

TOLERANCE = 1e-5
"""Nats by which both sides may differ on the probe. They run the same arithmetic on the same shapes: 0 is expected."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What the learner sends: its trained tensors, its version, and its scores of the probe under them."""

    named: Named
    version: int
    scores: tuple[float, ...]


class Replica:
    """The sampler's side. `model` has the learner's frozen tensors themselves and copies of `named`, the trained ones."""

    def __init__(self, learner: InProcessModel, named: Named) -> None:
        trained = {id(each) for each in named.values()}
        shared = {id(each): each for each in learner.network.parameters() if id(each) not in trained}
        network = copy.deepcopy(learner.network, shared)
        self.model = InProcessModel(network, learner.tokenizer, learner.name, learner.token_budget)
        self.model.version = learner.version
        own = dict(network.named_parameters())
        self._own = {name: own[name].requires_grad_(False) for name in named}
        self._probe = probe(learner)

    def outgoing(self, learner: InProcessModel, named: Named) -> Outgoing:
        """Called on the learner's side, when no step is being made."""
        return Outgoing(named, learner.version, scores(learner, self._probe))

    @torch.no_grad()
    def publish(self, sent: Outgoing) -> Receipt:
        """Take the trained tensors over. Raises NothingDelivered or DeliveryFailed where that cannot be proven.

        Nothing may be sampled meanwhile: interrupt the batch first, call this from the thread that samples."""
        begun = time.perf_counter()
        self.take(sent)
        lost = [name for name, value in sent.named.items() if not torch.equal(self._own[name], value)]
        if lost:
            raise NothingDelivered(
                f"Version {sent.version} did not reach the sampler: {lost[0]} (of {len(lost)}) is not what was sent.",
                "Let one learner publish to one sampler, and nothing else write to its weights.",
            )
        if self.model.version != sent.version:
            raise NothingDelivered(
                f"The sampler says version {self.model.version} after version {sent.version} was published.",
                "Let one learner publish to one sampler.",
            )
        here = scores(self.model, self._probe)
        gap = max(abs(a - b) for a, b in zip(here, sent.scores, strict=True))
        if not gap <= TOLERANCE:
            raise DeliveryFailed(
                f"After the publication of version {sent.version} sampler and learner differ by {gap:.4g} nats on the "
                f"probe, more than the tolerance of {TOLERANCE:g}.",
                "Something besides the published tensors differs between the two networks.",
            )
        return Receipt(sent.version, gap, time.perf_counter() - begun)

    def take(self, sent: Outgoing) -> None:
        """Copy the tensors and the version."""
        for name, value in sent.named.items():
            self._own[name].copy_(value)
        self.model.version = sent.version


def probe(model: InProcessModel) -> tuple[Tokens, Tokens]:
    """A fixed text and how it goes on, for both sides to score."""
    ids = model.encode("A weight update that arrived changes what the model says next.")
    half = max(1, len(ids) // 2)
    return ids[:half], ids[half:]


def scores(model: InProcessModel, probed: tuple[Tokens, Tokens]) -> tuple[float, ...]:
    (found,) = model.score([probed[0]], [[probed[1]]])
    return found[0]
