"""Recall and reward cost little beside the search: measured on processor time, with room for a busy machine."""

from __future__ import annotations

import time

from keepworth import policy
from keepworth.memory.item import Status
from keepworth.memory.policy.experience import Experience
from keepworth.memory.policy.hashed_words import HashedWords
from keepworth.memory.policy.pool import Advice


def test_recall_and_reward_take_about_a_millisecond_among_a_thousand_items() -> None:
    encoder = HashedWords()
    experience = Experience(policy("advantage"), encoder)
    for number in range(1000):
        key = f"alpha{number % 50} beta{number % 7} gamma{number}"
        experience.pool.add(
            Advice(key, key, do=(f"action{number % 6}",)), status=Status.ACTIVE, time=0, vector=encoder.encode([key])[0]
        )
    experience.query("alpha3 beta2 gamma", "")
    spent = []
    for number in range(60):
        text = f"alpha{number % 50} beta{number % 7}"
        experience.query(text, "")  # Embedding is not counted.
        started = time.process_time()
        use = experience.recall(text, actions=("action1", "action2"))
        assert use.propensity > 0.0
        experience.finish([(use, "action1")], 1.0)
        spent.append(time.process_time() - started)
    # The quickest of them: what others do on the machine makes some slower, and none quicker. 2 ms where it is idle.
    assert min(spent) < 0.006
