"""While the sampler draws, the learner switches its adapters and its weights about: the sampler must not see it."""

from __future__ import annotations

import threading

import pytest

from keepworth.models.inprocess import InProcessModel
from keepworth.records import Sample, SamplingParams
from keepworth.training.collect.partial_sample import PartialSample
from keepworth.training.collect.sampler import DraftBatch
from keepworth.training.critic import CriticSettings
from keepworth.training.objective.options import Objective
from keepworth.training.objective.presets import preset
from keepworth.training.replica import Replica
from tests.learning.turns import learner_of, sampled_groups

PROMPTS = [tuple(f"letters {number}:".encode()) for number in range(6)]


def drawn(model: InProcessModel) -> list[Sample]:
    """Many short decoding steps, between any two of which the other thread may have switched something."""
    batch = DraftBatch(model, slots=4)
    drafts = [PartialSample(prompt, SamplingParams(40, seed=3), (j,)) for j, prompt in enumerate(PROMPTS)]
    for draft in drafts:
        batch.add(draft)
    while batch.busy:
        batch.step()
    return [draft.sample() for draft in drafts]


@pytest.mark.parametrize(
    ("objective", "lora"),
    [
        (preset("ppo"), True),  # a critic's adapter, and a reference by switching the policy's off
        (preset("grpo"), True),  # a reference by switching off
        (preset("prorl"), True),  # a reference that is exchanged for the weights
        (preset("grpo"), False),
    ],
    ids=["critic", "adapter off", "reset reference", "all weights"],
)
def test_sampling_beside_updates_equals_sampling_alone(objective: Objective, lora: bool) -> None:
    critic = CriticSettings(rank=2) if objective.needs_critic else None
    learner = learner_of(objective, 4 if lora else 0, learning_rate=1e-2, critic=critic)
    model, named = learner.model, learner.master_weights.named
    groups = sampled_groups(model)
    learner.update(groups)  # an adapter that is no longer the identity
    replica = Replica(model, named)
    replica.publish(replica.outgoing())
    expected = drawn(replica.model)

    found: list[list[Sample]] = []
    failed: list[BaseException] = []
    stop = threading.Event()

    def sample() -> None:
        try:
            while not stop.is_set() or not found:
                found.append(drawn(replica.model))
        except BaseException as error:
            failed.append(error)

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        for _ in range(4):
            learner.update(groups)
    finally:
        stop.set()
        sampler.join()
    assert not failed, failed
    assert found
    assert all(each == expected for each in found)
    replica.publish(replica.outgoing())
    assert drawn(replica.model) != expected, "the updates changed nothing: the test would see no switch either"
