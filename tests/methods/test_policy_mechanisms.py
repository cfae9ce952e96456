"""Hand-worked numbers of the policies; and a learned selector, when it is on, chooses otherwise than plain similarity."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from keepworth import Memory, policy
from keepworth.memory.by_name import policies_of_cases, seeded, settings_of
from keepworth.memory.choose.experience import Experience
from keepworth.memory.choose.hashed_words import HashedWords
from keepworth.memory.choose.pool import Advice, Pool
from keepworth.memory.choose.slots import Candidates, Use, Values
from keepworth.memory.errors import InvalidPolicy
from keepworth.memory.item import Status
from keepworth.methods.policies._ridge import Ridge
from keepworth.methods.policies.ace import HelpAndHarm
from keepworth.methods.policies.dead_ends import Capped, DeadEnds
from keepworth.methods.policies.earm import CompletedScores
from keepworth.methods.policies.expel import Votes
from keepworth.methods.policies.memento_kernel import KernelQ
from keepworth.methods.policies.memento_p import CaseNetwork
from keepworth.methods.policies.memq import ProvenanceQ
from keepworth.methods.policies.mixture import Estimator, MixtureValuer
from keepworth.methods.policies.romerl import ReducedUtilities
from keepworth.registry import methods
from keepworth.worlds.streams import open_stream
from tests.memory.helpers import finish, recall

ENCODER = HashedWords(256)
ACTIONS = ("left", "right", "stay")
DECLARED = methods("policy")
NEW = ("amem", "memq", "romerl", "earm", "dead-ends", "ace", "agent-workflow-memory", "expel", "dynamic-cheatsheet")
ALWAYS = ("mixture",)
"""They weigh every candidate by chance, so that none is left out for good."""


def of(name: str, **settings: Any) -> Experience:
    return Experience(policy(name, **settings), ENCODER)


def met(experience: Experience, text: str, action: str, outcome: float, goal: str = "") -> Use:
    use = recall(experience, goal or text, text if goal else "", ACTIONS)
    finish(experience, [(use, action)], outcome)
    return use


def use_of(experience: Experience, text: str, rows: list[int], reward: float, taken: str = "left") -> Use:
    """A choice of just these rows, as if it had been rewarded."""
    query = experience.query(text, "", ACTIONS)
    candidates = Candidates(np.array(rows, dtype=np.intp), np.ones(len(rows)))
    slate, blank = tuple(range(len(rows))), np.zeros(len(rows))
    return Use(query, candidates, Values(blank, blank), None, slate, "main", taken, reward, reward)


def add(experience: Experience, key: str, action: str) -> int:
    return experience.pool.add(Advice(key, key, do=(action,)), status=Status.ACTIVE, time=0)


def test_memq_credits_ancestors_by_their_shortest_distance_as_worked_by_hand() -> None:
    experience = of("memq")
    graph: tuple[tuple[int, ...], ...] = ((), (0,), (1, 0), (2,))
    for parents in graph:
        experience.pool.revise(add(experience, "alpha", "left"), parents=parents)
    valuer = ProvenanceQ(rate=0.5, gamma=0.8, trace=0.5, depth=2)
    valuer.learn(use_of(experience, "alpha", [3], 1.0), experience.pool)
    # 3 was shown; 2 is its parent; 1 and 0 are at depth 2, although 0 is at depth 3 by another way. gamma * trace = .4
    assert valuer.q.upto(4)[:4] == pytest.approx([0.5 * 0.16, 0.5 * 0.16, 0.5 * 0.4, 0.5])
    valuer.learn(use_of(experience, "alpha", [2], 0.0), experience.pool)
    # 2: .2 + .5 * (-1 - .2); 1 and 0 are its parents: .08 + .5 * .4 * (-1 - .08)
    assert valuer.q.upto(4)[:4] == pytest.approx([-0.136, -0.136, -0.4, 0.5])


def test_memq_records_shown_items_as_parents() -> None:
    experience = of("memq", threshold=0.0)
    met(experience, "alpha beta", "left", 1.0)
    assert met(experience, "alpha beta", "left", 1.0).rows == [0]
    assert experience.pool.items[1].metadata["parents"] == (0,)
    alone = ProvenanceQ(trace=0.0)
    alone.learn(use_of(experience, "alpha beta", [1], 1.0), experience.pool)
    assert alone.q.upto(2)[:2] == pytest.approx([0.0, 0.3])
    drawn = of("memq", threshold=0.0, without="true-parents")
    asked = [f"word{number} thing{number}" if number < 8 else "word1 thing1" for number in range(12)]
    true_parents = [tuple(met(drawn, situation, "left", 1.0).rows) for situation in asked][8:]
    assert [item.metadata["parents"] for item in drawn.pool.items[8:]] != true_parents


def test_ablated_reme_keeps_items_and_ablated_amem_ignores_links() -> None:
    cases: list[tuple[dict[str, Any], int, bool]] = [({"k": 1}, 4, False), ({"k": 1}, 5, True), ({"least": 2}, 3, True)]
    for settings, failures, deleted in (*cases, ({"least": 2, "without": "deletion"}, 3, False)):
        experience = of("reme", **settings)
        met(experience, "alpha beta", "left", 1.0)
        for _ in range(failures):  # shown, and it failed
            met(experience, "alpha beta", "left", 0.0)
        assert (experience.pool.items[0].status is Status.ARCHIVED) == deleted
    for near, without, shown in ((1, "", [2, 0, 1]), (3, "", [2, 1, 0]), (1, "links", [2, 1, 0])):
        experience = of("amem", k=3, near=near, without=without)
        for key in ("alpha beta gamma delta", "alpha beta gamma omega", "alpha beta gamma omega omega"):
            add(experience, key, "left")
        experience.pool.revise(2, links=(0,))
        assert recall(experience, "alpha beta gamma omega omega", "", ACTIONS).rows == shown


def test_romerl_keeps_gains_and_losses_apart_and_credits_by_rank_as_worked_by_hand() -> None:
    experience = of("romerl")
    rows = [add(experience, "alpha", "left"), add(experience, "beta", "right"), add(experience, "gamma", "left")]
    valuer = ReducedUtilities(rate=0.6, alike=0.5)
    valuer.learn(use_of(experience, "alpha", rows[:2], 1.0), experience.pool)
    # Ranks 1 and 2 weigh 2/3 and 1/3: gains .6 * 2/3 and .6 * 1/3.
    use = use_of(experience, "alpha", rows, 0.0)
    assert valuer.estimate(use.query, use.candidates, experience.pool).means == pytest.approx([0.4, 0.2, 0.4])
    valuer.learn(use_of(experience, "alpha", rows[2:], 0.0), experience.pool)
    # The loss of "left" is .6; its gain stays .4, also for the first memory, which says the same.
    assert valuer.estimate(use.query, use.candidates, experience.pool).means == pytest.approx([-0.2, 0.2, -0.2])
    elsewhere = use_of(experience, "omega", rows, 0.0)
    assert valuer.estimate(elsewhere.query, elsewhere.candidates, experience.pool).means == pytest.approx([0, 0, 0])
    assert len(valuer.centres) == 1


def test_earm_completes_a_score_from_like_questions_and_like_memories_as_worked_by_hand() -> None:
    experience = of("earm")
    entries = (("alpha beta", "left"), ("alpha", "left"), ("alpha beta", "right"))
    rows = [add(experience, key, action) for key, action in entries]
    valuer = CompletedScores(bandwidth=0.5, weight=0.2)
    valuer.learn(use_of(experience, "alpha beta", rows[:1], 1.0), experience.pool)
    valuer.learn(use_of(experience, "alpha", rows[:1], 0.0), experience.pool)
    use = use_of(experience, "alpha beta", rows, 1.0)
    near = float(np.exp((np.sqrt(0.5) - 1.0) / 0.5))  # of "alpha" and "alpha beta"
    same = (1.0 - near) / (1.0 + near + 0.2)
    like = (near - near * near) / (near + near * near + 0.2)
    means = valuer.estimate(use.query, use.candidates, experience.pool).means
    assert means == pytest.approx([same, like, 0.0], abs=1e-5)


def test_dead_ends_propagate_as_computed_by_hand() -> None:
    experience = of("dead-ends")
    valuer = DeadEnds(bandwidth=0.1, weight=1.0)
    last = use_of(experience, "second room", [], 0.0, "left")
    valuer.learn(last, experience.pool)
    numbers = np.array([experience.pool.content_of(action) for action in ACTIONS])
    assert valuer.values(last.query.vector, numbers) == pytest.approx([-0.5, 0.0, 0.0])  # -1 / (1 + weight)
    first = use_of(experience, "first place", [], 0.0, "left")
    first.following = last
    valuer.learn(first, experience.pool)
    assert valuer.values(first.query.vector, numbers[:1]) == pytest.approx([0.0], abs=1e-3)  # two ways out are left
    for action in ("right", "stay"):
        valuer.learn(use_of(experience, "second room", [], 0.0, action), experience.pool)
    valuer.learn(first, experience.pool)
    # Now the best that is offered next has -.5: (0 - .5) / (2 + 1).
    assert valuer.values(first.query.vector, numbers[:1]) == pytest.approx([-0.5 / 3.0], abs=1e-3)


def test_a_cap_takes_the_share_of_an_action_as_worked_by_hand() -> None:
    experience = of("dead-ends")
    rows = [add(experience, f"alpha {n}", action) for n, action in enumerate(("left", "left", "right", "stay"))]
    candidates = Candidates(np.array(rows), np.zeros(4))
    query = experience.query("alpha", "", ACTIONS)
    selector = Capped(k=4, temperature=0.1, slack=0.1)
    chosen = selector(query, candidates, Values(np.array([-0.8, -0.8, 0.0, -0.95]), np.zeros(4)), experience.pool)
    # Even shares of 1/4. "left" has 1/2 and may have 1 - .8 + .1 = .3: .15 each. "stay" may have less than the slack: gone.
    assert chosen.first == pytest.approx([0.15, 0.15, 0.25, -np.inf])
    assert chosen.draw(np.random.default_rng(0))[0] == (2, 0, 1)


def test_ace_counts_followed_bullets_and_ranks_harmful_ones_last() -> None:
    experience = of("ace", k=1, pool=2)
    rows = [add(experience, "alpha beta", "left"), add(experience, "alpha beta gamma", "right")]
    valuer = HelpAndHarm()
    for reward in (1.0, 0.0, 0.0):
        valuer.learn(use_of(experience, "alpha beta", rows, reward, "left"), experience.pool)
    use = use_of(experience, "alpha beta", rows, 0.0)
    # "left" was followed three times, helped once: (1 - 2) / 4. "right" was not followed.
    assert valuer.estimate(use.query, use.candidates, experience.pool).means == pytest.approx([-0.25, 0.0])
    experience.policy.valuer = valuer
    assert recall(experience, "alpha beta", actions=ACTIONS).rows == [rows[1]]
    before = len(experience.pool)
    met(experience, "alpha beta", "left", 1.0)
    assert len(experience.pool) == before  # it is there


def test_a_workflow_is_found_by_its_goal_and_gives_the_step_of_the_observation() -> None:
    experience = of("agent-workflow-memory")
    uses = [
        (recall(experience, "make tea", seen, ACTIONS), did) for seen, did in (("kettle", "left"), ("cup", "right"))
    ]
    finish(experience, uses, 1.0)
    finish(experience, [(recall(experience, "make tea", "kettle", ACTIONS), "stay")], 0.0)  # a failure gives none
    assert [item.metadata["workflow"] for item in experience.pool.items] == [(("kettle", "left"), ("cup", "right"))]

    def advised(seen: str, step: int) -> list[str]:
        shown = experience.present(recall(experience, "make tea", seen, ACTIONS, step=step))
        return [action for action, *_ in shown.advice]

    assert advised("cup", 0) == ["right"]
    assert advised("spoon", 0) == ["left"]
    assert advised("spoon", 2) == []


def test_expel_makes_an_insight_of_two_successes_and_votes_it_out() -> None:
    experience = of("expel")
    met(experience, "red round apple here", "left", 1.0)
    met(experience, "red round apple there", "left", 1.0)
    insight = next(row for row, item in enumerate(experience.pool.items) if item.metadata.get("insight"))
    assert experience.pool.items[insight].key == "red round apple"
    valuer = experience.policy.valuer
    assert isinstance(valuer, Votes)
    assert valuer.votes.upto(8)[insight] == 0.0
    experience.policy.writer = lambda finished: []
    for _ in range(2):
        assert experience.pool.items[insight].status is Status.ACTIVE
        met(experience, "red round apple", "left", 0.0)
    assert valuer.votes.upto(8)[insight] == -2.0
    assert experience.pool.items[insight].status is Status.ARCHIVED


def test_a_full_sheet_loses_the_line_that_was_used_least() -> None:
    experience = of("dynamic-cheatsheet", k=1, lines=2)
    for text in ("alpha beta", "gamma delta"):
        met(experience, text, "left", 1.0)
    for _ in range(3):
        met(experience, "alpha beta", "left", 1.0)
    met(experience, "epsilon zeta", "right", 1.0)
    left = [item.key for item in experience.pool.items if item.status is Status.ACTIVE]
    assert left == ["alpha beta", "epsilon zeta"]


def after_a_short_stream(name: str, failures: bool) -> list[set[tuple[str, float]]]:
    """What it advises in later situations, after an agent that acts by chance met 80 tasks with it, told which worked."""
    settings = dict(DECLARED[name].on) | ({"failures": failures} if "failures" in settings_of(name) else {})
    experience = Experience(seeded(name, 0, **settings), ENCODER)
    stream, guess = open_stream("near-miss", seed=3, length=120), np.random.default_rng(1)
    scenes = [task.environment().scene for task in stream.tasks]
    for scene in scenes[:80]:
        action = str(guess.choice(scene.actions))
        use = recall(experience, scene.goal, scene.observation, scene.actions)
        finish(experience, [(use, action)], float(action in scene.right))
    shown = [recall(experience, scene.goal, scene.observation, scene.actions, frozen=True) for scene in scenes[80:]]
    return [{(action, weight) for action, weight, _ in experience.present(use).advice} for use in shown]


WITH_A_MECHANISM = [name for name in policies_of_cases() if DECLARED[name].on or name in NEW]
WITH_A_MECHANISM.remove("agent-workflow-memory")  # a task of one decision has no workflow: see its test above


@pytest.mark.parametrize("name", WITH_A_MECHANISM)
def test_with_its_mechanism_on_a_rival_advises_otherwise_than_plain_similarity(name: str) -> None:
    failures = "failures" in settings_of(name)
    rows = zip(after_a_short_stream(name, failures), after_a_short_stream("exprag", failures), strict=True)
    different = sum(one != other for one, other in rows)
    assert different >= 4, f"{name} does nothing of its own in {40 - different} of 40 situations"


def test_every_selector_with_a_pool_has_room_to_choose_when_it_is_on() -> None:
    for name in policies_of_cases():
        if name in ALWAYS or not {"k", "pool"} <= settings_of(name):
            continue
        made: Any = seeded(name, 0, **DECLARED[name].on)
        assert made.retriever.retriever.k >= 3 * made.selector.k, name


def test_gitm_condenses_frequent_successes_into_one_plan() -> None:
    experience = of("gitm", successes=3)
    for goal, action in (("one", "left"), ("two", "right"), ("three", "left")):
        met(experience, "the shaft", action, 1.0, goal)
    pool = experience.pool
    assert [item.status for item in pool.items] == [Status.ARCHIVED, Status.ARCHIVED, Status.ACTIVE]
    assert pool.items[2].metadata["successes"] == 2
    met(experience, "the well", "stay", 1.0, "one")
    use = recall(experience, "four", "the shaft", ACTIONS)
    assert [pool.items[row].key for row in use.rows] == ["the shaft"]
    assert len(recall(experience, "four", "the river", ACTIONS).rows) == 2


def test_a_procedure_that_was_followed_and_failed_is_revised_in_place_and_back() -> None:
    experience = of("memp")
    pool = experience.pool

    def says() -> list[tuple[str, str]]:
        active = [item for item in pool.items if item.status is Status.ACTIVE]
        return [(item.key, "".join(item.metadata["do"]) or f"not {item.metadata['avoid'][0]}") for item in active]

    met(experience, "alpha beta", "left", 0.0)
    assert says() == []  # a failure alone gives nothing
    met(experience, "alpha beta", "left", 1.0)
    met(experience, "alpha beta", "right", 0.0)
    assert says() == [("alpha beta", "left")]  # it was shown and not followed
    met(experience, "alpha gamma", "left", 0.0)
    assert says() == [("alpha beta", "not left")]  # under its own key
    met(experience, "alpha beta", "left", 1.0)
    assert says() == [("alpha beta", "left"), ("alpha beta", "left")]  # what worked, and the warning turned back
    for strict in ({"alike": 0.9}, {"without": "adjustment"}):
        experience = of("memp", **strict)
        pool = experience.pool
        met(experience, "alpha beta", "left", 1.0)
        met(experience, "alpha gamma", "left", 0.0)  # a cosine of 1/2
        assert says() == [("alpha beta", "left")]


def test_memrl_moves_q_as_worked_by_hand() -> None:
    experience = of("memrl", threshold=0.0, k=1, pool=1)
    met(experience, "alpha beta", "left", 1.0)
    valuer: Any = experience.policy.valuer
    assert valuer.q.upto(1)[0] == 0.0  # Written by the episode, shown by none yet.
    met(experience, "alpha beta", "left", 1.0)
    assert valuer.q.upto(1)[0] == pytest.approx(0.3)
    experience.policy.writer = lambda finished: []
    met(experience, "alpha beta", "left", 0.0)
    # Row 1 now ties with row 0 and is newer: only it moved.
    assert valuer.q.upto(2)[:2] == pytest.approx([0.3, -0.3])


def test_rememberer_averages_returns_and_names_good_and_bad_actions() -> None:
    experience = of("rememberer")
    for action, outcome in (("left", 1.0), ("left", 0.0), ("left", 1.0), ("right", 0.0)):
        met(experience, "fork ahead", action, outcome, goal="get home")
    data = experience.pool.items[0].metadata
    assert data["q"]["left"] == pytest.approx(1 / 3)  # +1, -1, +1 at 1/N
    assert data["q"]["right"] == -1.0
    assert data["n"] == {"left": 3, "right": 1}
    shown = experience.present(recall(experience, "get home", "fork ahead", ACTIONS))
    assert {(a, w) for a, w, _ in shown.advice} == {("left", 1.0), ("right", -1.0)}
    assert "Encouraged: left" in shown.text


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_rememberer_compares_by_goal_without_an_observation(share: float) -> None:
    experience = of("rememberer", k=1, share=share)
    for text, action in (("alpha beta gamma", "left"), *[("delta epsilon zeta", "right")] * 2):
        met(experience, text, action, 1.0)
    use = recall(experience, "alpha beta gamma", "", ACTIONS)
    ((action, weight, similarity),) = experience.present(use).advice
    assert (action, weight) == ("left", 1.0)  # the other was visited more often, which decides between equals alone
    assert similarity == pytest.approx(1.0)  # the agent heeds advice by how alike the question is


def test_rememberer_bootstraps_after_n_steps() -> None:
    experience = of("rememberer", n=1)
    for _ in range(2):
        uses = [(recall(experience, "go", where, ACTIONS), "left") for where in ("first room", "second room")]
        finish(experience, uses, 1.0)
    by_place = {item.metadata["observation"]: item.metadata["q"] for item in experience.pool.items}
    assert by_place["second room"]["left"] == pytest.approx(1.0)
    # First pass: target 0 + nothing known ahead; second pass: target Q(second) = 1. Mean of 0 and 1.
    assert by_place["first room"]["left"] == pytest.approx(0.5)


def test_memento_network_learns_which_case_helps() -> None:
    pool = Pool(lambda text: ENCODER.encode([text])[0], 256)
    good = pool.add(Advice("red apple", "x", do=("left",)), status=Status.ACTIVE, time=0)
    bad = pool.add(Advice("green pear", "y", do=("right",)), status=Status.ACTIVE, time=0)
    experience = of("memento-p", k=1)
    experience.pool = pool
    network = CaseNetwork(steps=4)
    for number in range(60):
        use = recall(experience, "some fruit")
        place = number % 2
        use.slate = (place,)
        use.reward = float(use.rows[0] == good)
        network.learn(use, pool)
    use = recall(experience, "some fruit")
    means = network.estimate(use.query, use.candidates, pool).means
    values = dict(zip(use.candidates.rows.tolist(), means, strict=True))
    assert values[good] > 0.8
    assert values[bad] < 0.2


def test_kernel_q_target_follows_the_soft_bellman_equation() -> None:
    experience = of("memento-kernel")
    experience.pool.add(Advice("room", "x", do=("left",)), status=Status.ACTIVE, time=0)
    kernel = KernelQ(alpha=0.2, gamma=0.9, rate=1.0, metric_rate=0.0, start=0.3)
    first, second = recall(experience, "room one"), recall(experience, "room two")
    first.slate, second.slate = (0,), (0,)
    first.following, first.reward, second.reward = second, 1.0, 1.0
    kernel.learn(first, experience.pool)
    # One candidate: alpha * logsumexp(Q / alpha) = Q = start.
    assert kernel.value(first.query.vector, 0)[0] == pytest.approx(0.9 * 0.3)
    kernel.learn(second, experience.pool)
    assert kernel._entries[0][1][1] == pytest.approx(1.0)


def test_amem_links_to_neighbours_that_exist_and_shares_tags() -> None:
    experience = of("amem", link_above=0.3, evolve_above=0.3)
    met(experience, "alpha beta gamma", "left", 1.0)
    met(experience, "alpha beta gamma delta", "right", 1.0)
    first, second = experience.pool.items
    assert (first.metadata["links"], second.metadata["links"]) == ((), (0,))
    assert (first.metadata["tags"], second.metadata["tags"]) == (("left", "right"), ("right",))
    assert "right" in first.key
    assert experience.pool.vectors[0] == pytest.approx(ENCODER.encode([first.key])[0])


def test_amemguard_keeps_the_majority_and_warns_of_the_rest() -> None:
    experience = of("amemguard")
    for number, action in enumerate(("left", "left", "right")):
        experience.observe(Advice(f"alpha beta x{number}", "t", do=(action,)))
    use = recall(experience, "alpha beta", actions=ACTIONS)
    advised = [(a, w) for a, w, _ in experience.present(use).advice]
    assert advised.count(("left", 1.0)) == 2
    assert ("right", -1.0) in advised
    assert ("right", 1.0) not in advised


@pytest.mark.parametrize("bad", [
    *({"k": 0}, {"pool": 0}, {"explore": 1.5}, {"prior": float("nan")}, {"prior": 1.5}, {"share": -0.1}),
    {"without": "drift"},
])  # fmt: skip
def test_settings_that_cannot_take_effect_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidPolicy, match="fading" if "without" in bad else f"^{next(iter(bad))} of "):
        policy("mixture", **bad)


# The mixture of estimators: each against numbers worked out another way, and what it learns of which to believe.


def mixed(**settings: float) -> tuple[Experience, MixtureValuer]:
    experience = Experience(policy("mixture", **settings), HashedWords(128))
    valuer = experience.policy.valuer
    assert isinstance(valuer, MixtureValuer)
    return experience, valuer


def expected(experience: Experience, situation: str, action: str) -> np.ndarray:
    """By each estimator, of an action that no item advises."""
    valuer, pool = experience.policy.valuer, experience.pool
    assert isinstance(valuer, MixtureValuer)
    query = experience.query(situation, "", ACTIONS, learning=False)
    asked = np.array([pool.content_of(action)])
    return valuer._estimates(query, asked, np.zeros((1, 4)), pool)[:, 0]


def test_a_ridge_that_grew_is_the_one_that_is_solved_at_once() -> None:
    generator = np.random.default_rng(0)
    points, outcomes = generator.normal(size=(70, 5)), generator.random(70)
    covariance = points @ points.T
    ridge = Ridge(1.0, 0.0, prior=0.2)
    for n in range(70):
        ridge.add(covariance[n, :n], covariance[n, n], 0.3, float(outcomes[n]))
    at_once = np.linalg.solve(covariance + 0.3 * np.eye(70), outcomes - 0.2)
    asked = generator.normal(size=(70, 4)) * 0.01
    assert ridge.estimate(asked) == pytest.approx(0.2 + at_once @ asked, abs=1e-9)


def test_a_kernel_mean_is_drawn_to_the_ridge_as_worked_by_hand() -> None:
    experience, valuer = mixed()
    met(experience, "alpha beta", "left", 1.0)
    # One outcome in the same situation: the ridge's own variance is 1, its noise 0.3, the prior 0.2; no item advised it.
    ridge = 0.2 + 0.8 / 1.3
    kernel = (1.0 + 0.001 * ridge) / 1.001
    assert expected(experience, "alpha beta", "left")[:2] == pytest.approx([min(kernel, 0.98), ridge], abs=1e-6)
    assert expected(experience, "gamma", "left")[:2] == pytest.approx([0.2, 0.2], abs=1e-4)
    assert valuer.weights == pytest.approx(valuer.start)  # all of them said the prior


def test_mixture_weights_favour_accurate_estimators() -> None:
    experience, valuer = mixed()
    generator = np.random.default_rng(1)
    for number in range(60):  # alike situations differ, so that only the very same one says anything
        place = int(generator.integers(6))
        met(experience, f"common words of all and p{place}", ACTIONS[number % 2], float((place + number) % 2))
    near = valuer.weights[[estimator.bandwidth > 0.0 for estimator in valuer.estimators]].sum()
    assert near > 0.8
    assert valuer.weights.sum() == pytest.approx(1.0)


def test_rewards_count_as_they_are() -> None:
    experience, _ = mixed()
    for _ in range(6):
        met(experience, "alpha beta", "left", 0.4)
        met(experience, "alpha beta", "right", 0.0)
    left, right = (expected(experience, "alpha beta", action)[1] for action in ("left", "right"))
    assert 0.3 < left < 0.45
    assert right < 0.1


def test_a_frozen_memory_is_as_good_as_it_was() -> None:
    experience, _ = mixed()
    for _ in range(8):
        met(experience, "alpha beta", "left", 1.0)
    was = expected(experience, "alpha beta", "left")
    for _ in range(200):
        recall(experience, "alpha beta", "", ACTIONS, frozen=True)
        experience.clock.go_on(1.0)
    assert (expected(experience, "alpha beta", "left") == was).all()


def test_a_mixture_needs_an_estimator() -> None:
    with pytest.raises(InvalidPolicy):
        MixtureValuer(())
    assert MixtureValuer((Estimator(),)).weights.tolist() == [1.0]
    assert policy("mixture", k=2, here="newest").name == "mixture"


def test_one_unreliable_rewarder_does_not_reverse_the_mixture() -> None:
    topics = ("shirt torn sleeve", "phone screen cracked", "lamp flickers night", "kettle leaks base")
    actions, wrong = ("refund", "replace", "repair", "escalate"), 0
    for seed in range(3):
        draw = random.Random(seed)
        right = {topic: draw.choice(actions) for topic in topics}
        with Memory(encoder=HashedWords(64), policy="mixture", seed=seed) as memory:
            for number in range(100):
                topic, lies = draw.choice(topics), number >= 40 and number % 2 == 1
                by = "liar" if lies else f"user {number % 7}"
                with memory.episode(f"{topic} number {draw.randrange(99)}", by=by) as episode:
                    votes = dict.fromkeys(actions, 0.0)
                    for action, weight, _ in episode.search(actions=actions).advice:
                        votes[action] += weight
                    taken = right[topic] if lies else max(actions, key=lambda action: (votes[action], draw.random()))
                    episode.act(taken)
                    episode.reward(0.0 if lies else float(taken == right[topic]), by=by)
                wrong += number >= 50 and not lies and taken != right[topic]
    assert wrong <= 2
