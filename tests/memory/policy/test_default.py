"""The default policy: the search's own order until rewards surely say otherwise, and never by chance."""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import apsw
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import keepworth
from keepworth import Memory
from keepworth.memory.errors import CannotEvaluate, InvalidPolicy
from keepworth.memory.policy.effect import Effect, bayes_factor, effect
from keepworth.memory.policy.hashed_words import HashedWords
from keepworth.memory.store import log

HOLD = "to reset the router hold the button for ten seconds"
PULL = "to reset the router pull the plug for a minute"
ASKED = "how do I reset the router"


def opened(path: Path | str = ":memory:", **options: object) -> Memory:
    options.setdefault("seed", 3)
    return Memory(path, encoder=HashedWords(64), **options)  # type: ignore[arg-type]


def order(memory: Memory) -> list[str]:
    return [hit.text for hit in memory.search(ASKED)]


def test_the_rewarded_item_moves_up_the_punished_one_down_and_a_memory_without_rewards_stays(tmp_path: Path) -> None:
    memory, plain = opened(tmp_path / "a.mem"), opened(policy=None, seed=None)
    for each in (memory, plain):
        each.add_many([HOLD, PULL, "the router stands in the hall"])
    assert order(memory) == order(plain)
    first = order(plain)[0]
    helps = PULL if first == HOLD else HOLD
    for _ in range(300):
        hits = memory.search(ASKED, top_k=1)
        memory.reward(hits.decision, 1.0 if hits[0].text == helps else -1.0)
    top, *rest = memory.search(ASKED)
    assert top.text == helps
    assert top.why is not None
    assert top.why.moved == "up"
    assert top.why.worth is not None
    assert top.why.worth.effect > 1.0
    assert next(hit for hit in rest if hit.text == first).why.moved == "down"  # type: ignore[union-attr]
    assert rest[-1].text == first
    memory.close()
    again = opened(tmp_path / "a.mem")
    found = again.episode(explore=False).search(ASKED)  # draws of another process are others
    assert [hit.text for hit in found] == [top.text, *(hit.text for hit in rest)]
    assert order(plain)[0] == first


def test_over_permutations_of_the_rewards_nothing_moves() -> None:
    """The same searches with the same rewards in another order: an item that is worth nothing is moved by chance alone."""
    generator = random.Random(5)
    rewards = [1.0] * 30 + [-1.0] * 30
    moved = 0
    for _ in range(200):
        generator.shuffle(rewards)
        valuer = Effect()
        vector = np.eye(1, 8, dtype=np.float32)[0]
        for number, reward in enumerate(rewards):
            shown, withheld = (["m1"], ["m2"]) if number % 3 else (["m2"], ["m1"])
            valuer.add(vector, reward, shown, withheld)
        (worth,) = valuer.worth(vector, "", [keepworth.Item("m1", "text")])
        moved += worth.factor >= 100.0
    assert moved <= 4  # at most one in a hundred, in expectation


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40), st.integers(0, 40))
def test_the_bayes_factor_is_that_of_its_definition(a: int, b: int, c: int, d: int) -> None:
    """Integrals over the chance of success, by counting."""
    from math import comb

    def even(won: int, lost: int) -> float:
        return 1.0 / ((won + lost + 1) * comb(won + lost, won))

    expected = even(a, b) * even(c, d) / even(a + c, b + d)
    assert bayes_factor(a, b, c, d) == pytest.approx(expected, rel=1e-9)


def test_evidence_counts_where_its_situation_is_near() -> None:
    valuer = Effect(bandwidth=0.1)
    here, there = np.eye(2, 8, dtype=np.float32)
    near = np.float32(0.9) * here + np.float32(math.sqrt(0.19)) * there
    for number in range(20):
        valuer.add(here, float(number % 2), ["m1"] if number % 2 else ["m2"], ["m2"] if number % 2 else ["m1"])
    item = keepworth.Item("m1", "text")
    (worth,) = valuer.worth(here, "", [item])
    assert (worth.with_it, worth.without, worth.shown, worth.withheld) == pytest.approx((1.0, 0.0, 10.0, 10.0))
    (worth,) = valuer.worth(near, "", [item])
    assert worth.shown == pytest.approx(10.0 * math.exp(-1.0), rel=1e-3)
    (worth,) = valuer.worth(there, "", [item])
    assert (worth.shown, worth.factor) == (0.0, 1.0)


def test_only_the_newest_evidence_counts() -> None:
    valuer = Effect(newest=100)
    vector = np.eye(1, 4, dtype=np.float32)[0]
    for number in range(1000):
        valuer.add(vector, float(number >= 900), ["m1"] if number % 2 else ["m2"], ["m2"] if number % 2 else ["m1"])
    assert len(valuer) == 100
    (worth,) = valuer.worth(vector, "", [keepworth.Item("m1", "text")])
    assert (worth.with_it, worth.shown) == (1.0, 50.0)


def test_a_later_reward_of_the_same_choice_takes_the_place_of_the_earlier_one() -> None:
    valuer = Effect()
    vector = np.eye(1, 4, dtype=np.float32)[0]
    for _ in range(5):
        valuer.add(vector, 1.0, ["m1"], decision="d1")
    valuer.add(vector, 0.0, ["m1"], decision="d1")
    valuer.add(vector, 1.0, ["m1"], decision="d2")
    (worth,) = valuer.worth(vector, "", [keepworth.Item("m1", "text")])
    assert (worth.with_it, worth.shown) == (0.5, 2.0)


def test_the_searches_of_one_episode_weigh_as_one() -> None:
    memory = opened()
    item, _ = memory.add_many([HOLD, PULL])
    with memory.episode("reset it") as episode:
        for _ in range(20):
            episode.search(ASKED)
        episode.reward(1.0)
    assert memory.worth(item.id, ASKED).shown == pytest.approx(1.0, rel=1e-2)


def test_what_was_not_shown_elsewhere_says_nothing_here() -> None:
    """That an item ranked too low for a harder question nearby is no experiment."""
    valuer = Effect()
    here = np.eye(1, 8, dtype=np.float32)[0]
    near = np.float32(0.98) * here + np.float32(math.sqrt(1 - 0.98**2)) * np.eye(2, 8, dtype=np.float32)[1]
    for _ in range(50):
        valuer.add(here, 1.0, ["m1"])
        valuer.add(near, 0.0, ["m2"], unshown=["m1"])
    (worth,) = valuer.worth(here, "", [keepworth.Item("m1", "text")])
    assert (worth.withheld, worth.factor) == (0.0, 1.0)


def test_an_item_is_withheld_at_the_stated_rate_and_the_log_says_so() -> None:
    memory = opened(policy=lambda: effect(withhold=0.4, least=1, budget=1.0))
    memory.add_many([HOLD, PULL])
    for number in range(40):
        memory.reward(memory.search(ASKED).decision, float(number % 2))
    shown = [len(memory.search(ASKED)) for _ in range(200)]
    assert 60 <= shown.count(1) <= 100
    assert set(shown) == {1, 2}
    hits = memory.search(ASKED)
    assert hits.propensity == pytest.approx(0.6 if len(hits) == 2 else 0.4)


def test_without_withholding_no_other_policy_can_be_judged() -> None:
    memory = opened(policy={"never": lambda: effect(withhold=0.0), "often": lambda: effect(withhold=0.3)})
    memory.add_many([HOLD, PULL])
    for number in range(60):
        memory.reward(memory.search(ASKED).decision, float(number % 2))
    with pytest.raises(CannotEvaluate, match="no randomness"):
        memory.evaluate("often")
    assert memory.evaluate("never").value == pytest.approx(0.5)


def test_a_warning_and_advice_are_judged_by_what_was_done() -> None:
    memory = opened()
    do = memory.add("push the red knob", metadata={"do": ["push"], "avoid": [], "good": True, "born": 0, "of": 0})
    for number in range(40):
        with memory.episode("open the door") as episode:
            episode.search(actions=("push", "pull"))
            episode.act("push" if number % 2 else "pull")
            episode.reward(float(number % 2))
    worth = memory.worth(do.id, "open the door")
    assert worth.effect == pytest.approx(1.0)
    assert (worth.shown, worth.withheld) == pytest.approx((20.0, 20.0), rel=1e-2)


def test_a_rollback_takes_back_what_was_learned() -> None:
    memory = opened()
    ids = [item.id for item in memory.add_many([HOLD, PULL])]
    for number in range(20):
        memory.reward(memory.search(ASKED, top_k=1 + number % 2).decision, float(number % 2))
    snapshot, before = memory.snapshot(), [memory.worth(id, ASKED) for id in ids]
    for number in range(20):
        memory.reward(memory.search(ASKED, top_k=1 + number % 2).decision, float(number % 2 == 0))
    assert [memory.worth(id, ASKED) for id in ids] != before
    memory.rollback(since=snapshot)
    assert [memory.worth(id, ASKED) for id in ids] == before


def test_verbs_of_a_policy_are_refused_where_there_is_none() -> None:
    memory = opened(policy=None, seed=None)
    item = memory.add(HOLD)
    for verb in (lambda: memory.worth(item.id, ASKED), lambda: memory.evaluate("default"), memory.demote):
        with pytest.raises(InvalidPolicy, match="policy=None"):
            verb()
    assert memory.policy is None


def test_settings_of_named_policies_can_be_said() -> None:
    with Memory(encoder=None, policy=keepworth.policy("default", withhold=0.1)) as memory:
        assert memory.policy == "default"
    with pytest.raises(InvalidPolicy, match="withhold"):
        keepworth.policy("default", withhold=2.0)


TASK, SEEN = "make coffee from beans", "reset the router"


def without_vectors(path: Path) -> None:
    """As a file of format 4 has them: no vectors of queries, and nothing of what the policy knew."""
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("UPDATE decisions SET details = '', vector = NULL")


@pytest.mark.parametrize("how", ["no policy", "by words", "few candidates", "old file"])
def test_evidence_counts_where_the_item_was_asked_for_and_not_at_the_task_of_its_episode(
    how: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.mem"
    options: dict[str, object] = {"policy": None, "seed": None} if how == "no policy" else {}
    options |= {"keep_candidates": 1} if how == "few candidates" else {}
    with opened(path, **options) as memory:
        hold, _ = memory.add_many([HOLD, "coffee is made from beans"])
        for _ in range(10):  # as long as nothing is withheld
            episode = memory.episode(TASK)
            memory.search(
                SEEN, top_k=1, mode="lexical" if how in ("by words", "few candidates") else None, episode=episode.id
            )
            memory.reward(episode.id, 1.0)
    if how == "old file":
        without_vectors(path)
    with opened(path) as memory:
        assert memory.worth(hold.id, SEEN).shown == pytest.approx(10.0, rel=0.01)
        assert memory.worth(hold.id, TASK).shown < 1.0


@pytest.mark.parametrize("policy", ["default", "memrl"])
def test_what_was_asked_and_is_erased_teaches_nothing_elsewhere(policy: str, tmp_path: Path) -> None:
    with opened(tmp_path / "a.mem", policy=policy) as memory:
        hold, _, zebra = memory.add_many([HOLD, "coffee is made from beans", "the zebra has stripes"])
        for _ in range(12):
            episode = memory.episode(TASK)
            episode.search("zebra stripes", top_k=1)
            episode.search(SEEN, top_k=1)
            episode.act("press")
            episode.reward(1.0)
        memory.forget(zebra.id, purge_history=True)
        assert memory.learning is not None
        if policy == "default":
            assert memory.worth(hold.id, TASK).shown < 1.0
        assert all(use.query.observation for use, _ in memory.learning.experience.uses)


def test_a_search_in_the_name_of_an_episode_is_one_of_its_searches(tmp_path: Path) -> None:
    with opened(tmp_path / "a.mem", policy=lambda: effect(withhold=0.5, least=1.0)) as memory:
        memory.add_many([HOLD, PULL])
        for _ in range(30):
            memory.reward(memory.search(SEEN, top_k=1).decision, 1.0)
        measured = memory.episode("a task", explore=False)
        assert memory.search(SEEN, top_k=1).propensity < 1.0
        assert all(memory.search(SEEN, top_k=1, episode=measured.id).propensity == 1.0 for _ in range(20))
        episode = memory.episode(TASK)
        memory.search_many([SEEN, SEEN], episode=episode.id)
        episode.act("press")
    with opened(tmp_path / "a.mem", policy="memrl") as memory:
        number = memory.episode("another").number
        hits = memory.search(SEEN, episode=episode.id)
        with memory.store.database.reading() as connection:
            choice = log.single(connection, hits.decision)
        assert choice is not None
        assert choice.details["of"] == episode.number < number


@pytest.mark.parametrize(("searches", "bounds"), [(1, None), (4, None), (1, (-100.0, 100.0)), (3, (0.0, 2.0))])
def test_the_policy_that_ran_is_judged_to_earn_what_it_earned(
    searches: int, bounds: tuple[float, float] | None
) -> None:
    """Every choice has the probability that it was logged with: the policy knows then what it knew."""
    with opened(policy=lambda: effect(withhold=0.2, sure=10.0), reward_range=bounds) as memory:
        memory.add_many([HOLD, PULL])
        earned = []
        for number in range(60):
            episode = memory.episode("help the caller")
            found = [episode.search(ASKED, top_k=1) for _ in range(searches)]
            earned += [float(any("plug" in hit.text for hits in found for hit in hits))] * searches
            episode.reward(earned[-1])
            if number % 5 == 0:  # a later judgement of one choice takes the place of the earlier one
                memory.reward(found[0].decision, 1.0)
                earned[-searches] = 1.0
        estimate = memory.evaluate("default", method="ips")
        assert estimate.n == len(earned)
        assert estimate.value == pytest.approx(sum(earned) / len(earned), abs=1e-12)
        assert estimate.effective == pytest.approx(len(earned))


def test_estimates_are_in_the_unit_of_the_rewards() -> None:
    with opened(policy="memrl", reward_range=(0.0, 50.0)) as memory:
        earned = []
        for number in range(60):
            with memory.episode(f"task {number % 4}") as episode:
                decision = episode.search(actions=("press", "pull")).decision
                episode.act("press")
                if number == 59:  # the last has its own reward, and no other after it
                    earned.append(10.0)
                    memory.reward(decision, 10.0)
                    break
                earned.append(50.0 if number % 4 else 10.0)
                episode.reward(earned[-1])
        estimate = memory.evaluate("memrl", method="ips")
        assert estimate.n == len(earned)
        assert estimate.value == pytest.approx(sum(earned) / len(earned), rel=0.2)


class Passing(HashedWords):
    """An encoder behind a server that is busy at times."""

    busy = False

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        if self.busy:
            raise ValueError("the server is busy")
        return super().encode(texts)


@pytest.mark.parametrize("policy", ["default", "memrl"])
def test_rewards_outlast_an_encoder_that_fails_for_a_moment(policy: str, tmp_path: Path) -> None:
    with opened(tmp_path / "a.mem", policy=None, seed=None) as memory:
        hold = memory.add(HOLD)
        for _ in range(5):
            memory.reward(memory.search(SEEN).decision, 1.0)
    encoder = Passing(64)
    with Memory(tmp_path / "a.mem", encoder=encoder, policy=policy) as memory, warnings.catch_warnings():
        warnings.simplefilter("error")
        assert memory.learning is not None
        encoder.busy = True
        with pytest.raises(ValueError, match="busy"):
            memory.learning.experience  # noqa: B018
        encoder.busy = False
        assert memory.set_aside == {}
        if policy == "default":
            assert memory.worth(hold.id, SEEN).shown == pytest.approx(5.0, rel=1e-3)
        else:
            assert len(memory.learning.experience.uses) == 5


def test_the_newest_rewards_are_the_same_ones_after_reopening(tmp_path: Path) -> None:
    options = {"policy": lambda: effect(newest=5, withhold=0.0)}
    with opened(tmp_path / "a.mem", **options) as memory:
        hold = memory.add(HOLD)
        decisions = [memory.search(ASKED).decision for _ in range(6)]
        for place, value in ((0, 0.0), (1, 0.0), (2, 0.0), (3, 0.0), (0, 1.0), (4, 0.0), (5, 0.0)):
            memory.reward(decisions[place], value)
            live = memory.worth(hold.id, ASKED)
    assert live.with_it == pytest.approx(0.2)
    with opened(tmp_path / "a.mem", **options) as memory:
        assert memory.worth(hold.id, ASKED) == live


def test_rewards_from_before_a_range_was_declared_are_within_the_bounds(tmp_path: Path) -> None:
    """A share of successes beyond 1 would make anything sure."""
    with opened(tmp_path / "a.mem") as memory:
        items = memory.add_many([HOLD, PULL])
        for number in range(40):
            memory.reward(memory.search(ASKED, top_k=1).decision, 4.0 + number % 2)
    with opened(tmp_path / "a.mem", reward_range=(0.0, 1.0)) as memory:
        for _ in range(200):
            memory.reward(memory.search(ASKED, top_k=1).decision, 0.5)
        assert [memory.worth(item.id, ASKED).factor < 100.0 for item in items] == [True, True]
        valuer = Effect(bounds=(0.0, 1.0))
        vector = np.eye(1, 4, dtype=np.float32)[0]
        for value in (5.0, 4.0, 5.0):
            valuer.add(vector, value, ["m1"], ["m2"])
            valuer.add(vector, value, ["m2"], ["m1"])
        (worth,) = valuer.worth(vector, "", [keepworth.Item("m1", "text")])
        assert 0.1 < worth.factor < 1.0
