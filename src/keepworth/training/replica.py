"""A second network for the sampler: it shares frozen weights with the learner's network and has its own copy of the trained ones.

While the learner computes a step, the sampler does not see its gradients or its unfinished update. Between two tokens
`Replica.publish` copies the trained weights and proves that they arrived: without the proof, a publication that silently does
nothing would only look like growing staleness."""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass

from keepworth.base.needs import needs_llm

import torch

from keepworth.base.model_errors import DeliveryFailed
from keepworth.models.adapter import Named
from keepworth.models.inprocess import InProcessModel
from keepworth.records.model import Receipt

TOLERANCE = 1e-5
"""Nats by which learner and sampler may differ on the probe. They run the same arithmetic on the same shapes: 0 is expected."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """The learner's version, and its log-probabilities of the probe at that version."""

    version: int
    scores: tuple[float, ...]


class Replica:
    """The sampler's network: `model` shares the learner's frozen tensors and has copies of `named`, the trained ones."""

    def __init__(self, learner: InProcessModel, named: Named) -> None:
        trained = {id(value) for value in named.values()}
        shared = {
            id(parameter): parameter for parameter in learner.network.parameters() if id(parameter) not in trained
        }
        network = copy.deepcopy(learner.network, shared)
        self.model = InProcessModel(network, learner.tokenizer, learner.name, learner.token_budget)
        self.model.version = learner.version
        self._learner, self._named = learner, named
        copies = dict(network.named_parameters())
        self._copies = {name: copies[name].requires_grad_(False) for name in named}
        ids = learner.encode("A weight update that arrived changes what the model says next.")
        half = max(1, len(ids) // 2)
        self._probe = ids[:half], ids[half:]

    def outgoing(self) -> Outgoing:
        """Returns what `publish` needs. Call it in the learner's thread, when no step is being made."""
        return Outgoing(self._learner.version, self._scores(self._learner))

    @torch.no_grad()
    def publish(self, sent: Outgoing) -> Receipt:
        """Copies the trained tensors, which must not have changed since `outgoing`. Raises DeliveryFailed where the copy cannot
        be proven. Nothing may be sampled meanwhile: interrupt the batch first, and call this from the thread that samples."""
        begun = time.perf_counter()
        for name, value in self._named.items():
            self._copies[name].copy_(value)
        self.model.version = sent.version
        gap = max(abs(a - b) for a, b in zip(self._scores(self.model), sent.scores, strict=True))
        if not gap <= TOLERANCE:
            raise DeliveryFailed(
                f"After the publication of version {sent.version} sampler and learner differ by {gap:.4g} nats on the "
                f"probe, more than the tolerance of {TOLERANCE:g}.",
                "Something besides the published tensors differs between the two networks.",
            )
        return Receipt(sent.version, gap, time.perf_counter() - begun)

    def _scores(self, model: InProcessModel) -> tuple[float, ...]:
        prompt, branch = self._probe
        return model.score([prompt], [[branch]])[0][0]
