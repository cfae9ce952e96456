from __future__ import annotations

from typing import Any

import pytest

from keepworth import policy
from keepworth.memory.errors import InvalidPolicy
from keepworth.memory.item import Status
from keepworth.memory.policy.experience import Experience
from keepworth.memory.policy.hashed_words import HashedWords
from keepworth.memory.policy.pool import Advice, Pool
from keepworth.memory.policy.slots import Policy, Use
from keepworth.methods.policies.memento_kernel import KernelQ
from keepworth.methods.policies.memento_p import CaseNetwork

ENCODER = HashedWords(256)
ACTIONS = ("left", "right", "stay")


def met(experience: Experience, text: str, action: str, outcome: float, goal: str = "") -> Use:
    use = experience.recall(goal or text, text if goal else "", ACTIONS)
    experience.finish([(use, action)], outcome)
    return use


def of(composition: Policy, seed: int = 0) -> Experience:
    return Experience(composition, ENCODER, seed=seed)


def test_memrl_moves_q_as_worked_by_hand() -> None:
    experience = of(policy("memrl", threshold=0.0, k=1, pool=1))
    met(experience, "alpha beta", "left", 1.0)
    q = lambda: float(experience.policy.valuer.q.upto(1)[0])  # noqa: E731
    assert q() == 0.0  # Written by the episode, shown by none yet.
    met(experience, "alpha beta", "left", 1.0)
    assert q() == pytest.approx(0.3)
    experience.policy.writer = lambda finished: []
    met(experience, "alpha beta", "left", 0.0)
    # Row 1 now ties with row 0 and is newer: only it moved.
    assert q() == pytest.approx(0.3)
    assert float(experience.policy.valuer.q.upto(2)[1]) == pytest.approx(-0.3)


def test_reme_deletion_fires() -> None:
    experience = of(policy("reme", k=1))
    met(experience, "alpha beta", "left", 1.0)
    for _ in range(5):
        assert experience.pool.items[0].status is Status.ACTIVE
        met(experience, "alpha beta", "right", 0.0)
    assert experience.pool.items[0].status is Status.ARCHIVED


def test_rememberer_averages_returns_and_names_good_and_bad_actions() -> None:
    experience = of(policy("rememberer"))
    for action, outcome in (("left", 1.0), ("left", 0.0), ("left", 1.0), ("right", 0.0)):
        met(experience, "fork ahead", action, outcome, goal="get home")
    data = experience.pool.items[0].metadata
    assert data["q"]["left"] == pytest.approx(1 / 3)  # +1, -1, +1 at 1/N
    assert data["q"]["right"] == -1.0
    assert data["n"] == {"left": 3, "right": 1}
    shown = experience.present(experience.recall("get home", "fork ahead", ACTIONS))
    assert {(a, w) for a, w, _ in shown.advice} == {("left", 1.0), ("right", -1.0)}
    assert "Encouraged: left" in shown.text


def test_rememberer_bootstraps_after_n_steps() -> None:
    experience = of(policy("rememberer", n=1))
    for _ in range(2):
        uses = [(experience.recall("go", where, ACTIONS), "left") for where in ("first room", "second room")]
        experience.finish(uses, 1.0)
    by_place = {item.metadata["observation"]: item.metadata["q"] for item in experience.pool.items}
    assert by_place["second room"]["left"] == pytest.approx(1.0)
    # First pass: target 0 + nothing known ahead; second pass: target Q(second) = 1. Mean of 0 and 1.
    assert by_place["first room"]["left"] == pytest.approx(0.5)


def test_memento_network_learns_which_case_helps() -> None:
    pool = Pool(lambda text: ENCODER.encode([text])[0], 256)
    good = pool.add(Advice("red apple", "x", do=("left",)), status=Status.ACTIVE, time=0)
    bad = pool.add(Advice("green pear", "y", do=("right",)), status=Status.ACTIVE, time=0)
    experience = of(policy("memento-p", k=1))
    experience.pool = pool
    network = CaseNetwork(steps=4)
    for number in range(60):
        use = experience.recall("some fruit")
        place = number % 2
        use.slate = (place,)
        use.reward = float(use.rows[0] == good)
        network.learn(use, pool)
    use = experience.recall("some fruit")
    values = dict(
        zip(use.candidates.rows.tolist(), network.estimate(use.query, use.candidates, pool).means, strict=True)
    )
    assert values[good] > 0.8
    assert values[bad] < 0.2


def test_kernel_q_target_follows_the_soft_bellman_equation() -> None:
    experience = of(policy("memento-kernel"))
    experience.pool.add(Advice("room", "x", do=("left",)), status=Status.ACTIVE, time=0)
    kernel = KernelQ(alpha=0.2, gamma=0.9, rate=1.0, metric_rate=0.0, start=0.3)
    first, second = experience.recall("room one"), experience.recall("room two")
    first.slate, second.slate = (0,), (0,)
    first.following, first.reward, second.reward = second, 1.0, 1.0
    kernel.learn(first, experience.pool)
    # One candidate: alpha * logsumexp(Q / alpha) = Q = start.
    assert kernel.value(first.query.vector, 0)[0] == pytest.approx(0.9 * 0.3)
    kernel.learn(second, experience.pool)
    assert kernel._entries[0][1][1] == pytest.approx(1.0)


def test_amem_links_to_neighbours_that_exist_and_shares_tags() -> None:
    experience = of(policy("amem", link_above=0.3, evolve_above=0.3))
    met(experience, "alpha beta gamma", "left", 1.0)
    met(experience, "alpha beta gamma delta", "right", 1.0)
    first, second = experience.pool.items
    assert second.metadata["links"] == (0,)
    assert "right" in first.metadata["tags"]
    assert "right" in first.key
    assert experience.pool.vectors[0] == pytest.approx(ENCODER.encode([first.key])[0])


def test_amemguard_keeps_the_majority_and_warns_of_the_rest() -> None:
    experience = of(policy("amemguard"))
    for number, action in enumerate(("left", "left", "right")):
        experience.observe(Advice(f"alpha beta x{number}", "t", do=(action,)))
    use = experience.recall("alpha beta", actions=ACTIONS)
    advised = [(a, w) for a, w, _ in experience.present(use).advice]
    assert advised.count(("left", 1.0)) == 2
    assert ("right", -1.0) in advised
    assert ("right", 1.0) not in advised


@pytest.mark.parametrize("bad", [{"k": 0}, {"pool": 0}, {"explore": 1.5}, {"prior": float("nan")}, {"share": -0.1}])
def test_settings_that_cannot_take_effect_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidPolicy):
        policy("mixture", **bad)
