"""RMM: gradients against finite differences, choices by hand, citations, topics, and the policy in live use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import keepworth
from keepworth import Memory
from keepworth.memory.choose.slates import log_plackett_luce, plackett_luce
from keepworth.memory.errors import InvalidAdvice, InvalidPolicy
from keepworth.methods.policies import rmm
from keepworth.methods.policies._topics import nearest_topic


def drawn(seed: int, d: int = 4, n: int = 5) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    generator = np.random.default_rng(seed)
    return generator.normal(size=d), generator.normal(size=(n, d)), generator


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_the_gradient_is_that_of_finite_differences(seed: int) -> None:
    query, items, generator = drawn(seed)
    reranker, shape = rmm.Reranker(), (4, 4)
    reranker.for_query, reranker.for_items = generator.normal(size=shape), generator.normal(size=shape)
    slate, advantages = (3, 0, 2), generator.normal(size=3).tolist()
    by_query, by_items = reranker.slopes(query, items, slate, advantages)

    def value() -> float:
        return float(np.dot(advantages, log_plackett_luce(reranker.logits(query, items), slate)))

    for weights, slope in ((reranker.for_query, by_query), (reranker.for_items, by_items)):
        for place in np.ndindex(*shape):
            kept = weights[place]
            weights[place] = kept + 1e-5
            above = value()
            weights[place] = kept - 1e-5
            below = value()
            weights[place] = kept
            assert slope[place] == pytest.approx((above - below) / 2e-5, abs=1e-4)


def test_the_first_update_by_hand() -> None:
    """q = (1, 0); m = (1, 0), (0, 1); tau = 1; b = 0.5. Chances e / (1 + e) and 1 / (1 + e); the second is shown, and cited."""
    reranker = rmm.Reranker(temperature=1.0, rate=0.1, batch=1)
    query, items = np.array([1.0, 0.0]), np.eye(2)
    assert reranker.logits(query, items) == pytest.approx([1.0, 0.0])  # at first the retriever's own score
    reranker.learn(query, items, (1,), (1.0,))
    p = np.e / (1.0 + np.e)
    # (R - b) (m_2 - sum of p m) q' = 0.5 (-p, p) (1, 0)', and (R - b) q (m_2 - sum of p m)'.
    assert reranker.for_query == pytest.approx(0.05 * np.array([[-p, 0.0], [p, 0.0]]))
    assert reranker.for_items == pytest.approx(0.05 * np.array([[-p, p], [0.0, 0.0]]))


def test_the_papers_update_by_hand_for_a_slate_of_two_from_weights_that_have_learned() -> None:
    """tau = .5, b = .5, eta = 1e-3 and batches of four, as in the paper. q' = q + W_q q = (1, 1) and m' = m + W_m m = (a + b, b),
    so that s / tau = ln 2, 0, 0. Shown are the first, by 2/4, and then the second, by 1/2; the second alone is cited.

    By s / tau: (-1 - b) ((1, 0, 0) - (2, 1, 1) / 4) + (1 - b) ((0, 1, 0) - (0, 1, 1) / 2) = (-3/4, 5/8, 1/8). By s twice that,
    (-3/2, 5/4, 1/4) = g. The step is eta g_i m'_i q^T, summed, for W_q, and eta q' g_i m_i^T for W_m."""
    reranker, half = rmm.Reranker(), np.log(2.0) / 2.0
    reranker.for_query, reranker.for_items = np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([[0.0, 1.0], [0.0, 0.0]])
    query, items = np.array([1.0, 0.0]), np.array([[half, 0.0], [2.0, -1.0], [-2.0, 1.0]])
    assert reranker.logits(query, items) == pytest.approx([np.log(2.0), 0.0, 0.0])
    assert plackett_luce(reranker.logits(query, items), (0, 1)) == pytest.approx(2 / 4 * 1 / 2)
    for_query, for_items = reranker.for_query.copy(), reranker.for_items.copy()
    for _ in range(3):
        reranker.learn(query, items, (0, 1), (-1.0, 1.0))
    assert (reranker.for_query == for_query).all(), "a batch has four choices"
    reranker.learn(query, items, (0, 1), (-1.0, 1.0))
    by_query = 1e-3 * np.array([[1.0 - 1.5 * half, 0.0], [-1.0, 0.0]])
    by_items = 1e-3 * np.array([[2.0 - 1.5 * half, -1.0], [2.0 - 1.5 * half, -1.0]])
    assert reranker.for_query - for_query == pytest.approx(by_query)
    assert reranker.for_items - for_items == pytest.approx(by_items)
    # What was cited is likelier to be first.
    assert plackett_luce(reranker.logits(query, items), (1, 0)) > 1 / 4 * 2 / 3


def test_before_it_learns_it_gives_the_retrievers_order_and_shows_five_of_twenty() -> None:
    texts = [f"{'shirt ' * (number + 1)}{'cap ' * (25 - number)}number {number}" for number in range(25)]
    with Memory(policy="rmm", encoder="hashing") as memory:
        ids = [item.id for item in memory.add_many(texts)]
        vectors = memory.store.encode(["a shirt", *texts])
        query, *items = (np.frombuffer(vector, np.float32) for vector in vectors.values())
        nearest = [ids[place] for place in np.argsort(-(np.stack(items) @ query), kind="stable")]
        with memory.episode("a shirt", explore=False) as episode:
            assert [hit.id for hit in episode.search()] == nearest[:5]
        for _ in range(20):
            with memory.episode("a shirt") as episode:
                assert {hit.id for hit in episode.search()} <= set(nearest[:20])


@pytest.mark.parametrize(("reply", "of"), [
    ("Oslo [m3]", {"m3"}),
    ("Oslo [sic], see [m3, m12 ]", {"m3", "m12"}),
    ("I do not know [NO_CITE]", set()),
    ("By what was shown earlier [m99]", set()),
    ("Oslo", None),
    ("Oslo [see above]", None),
    ("Oslo [m3] (as in [1])", None),
    ("", None),
])  # fmt: skip
def test_citations_are_the_last_brackets(reply: str, of: set[str] | None) -> None:
    assert rmm.cited(reply, ("m3", "m12", "m20")) == of


@given(st.lists(st.sampled_from(["m1", "m22", "m3"]), unique=True))
def test_citations_round_trip_through_text(ids: list[str]) -> None:
    assert rmm.cited(f"Oslo {rmm.citing(ids)}", ("m1", "m22", "m3")) == set(ids)


def test_rule_cites_texts_with_most_answer_words() -> None:
    texts = ("I moved to Oslo in May", "Oslo is cold", "I like tea", "May in Oslo is best")
    assert rmm.cites_by_words("to Oslo, in May", "where did she move to and when?", texts) == [0, 3]
    assert rmm.cites_by_words("Bergen", "where?", texts) == []
    assert rmm.cites_by_words("tea", "does she like tea?", texts) == []


LINES = [f"line {word}" for word in ("one", "two", "three", "four", "five", "six")]


def reranker_of(memory: Memory) -> Any:
    return memory.learning.experience.policy.valuer.reranker


def lived(path: Path, **options: object) -> tuple[Memory, list[str]]:
    """A memory of six lines, asked twelve times about one of them, which is cited whenever it is shown."""
    policy = keepworth.policy("rmm", k=2, rate=2.0, temperature=0.2, batch=2, **options)
    memory = Memory(path, policy=policy, encoder="hashing", seed=3)
    ids = [item.id for item in memory.add_many(LINES)]
    for _ in range(12):
        with memory.episode("which line is it") as episode:
            shown = [hit.id for hit in episode.search()]
            episode.act(f"four {rmm.citing(id for id in shown if id == ids[3])}")
            episode.reward(1.0)
    return memory, ids


def first_of(memory: Memory) -> list[str]:
    with memory.episode("which line is it", explore=False) as episode:
        return [hit.id for hit in episode.search()]


def test_cited_items_rank_first_with_exact_propensities(tmp_path: Path) -> None:
    memory, ids = lived(tmp_path / "a.mem")
    with memory:
        assert first_of(memory)[0] == ids[3]
        hits = memory.episode("which line is it").search()
        reranker = reranker_of(memory)
        vectors = memory.store.encode(["which line is it", *LINES])
        query, *items = (np.frombuffer(vector, np.float32).astype(np.float64) for vector in vectors.values())
        logits = reranker.logits(query, np.stack(items))
        assert hits.propensity == pytest.approx(plackett_luce(logits, [ids.index(hit.id) for hit in hits]), rel=1e-4)
        assert hits.text.startswith(f"[{hits[0].id}] line ")
        learned = reranker.for_query.copy()
    with Memory(
        tmp_path / "a.mem", policy=rmm.rmm(k=2, rate=2.0, temperature=0.2, batch=2), encoder="hashing"
    ) as again:
        assert reranker_of(again).for_query == pytest.approx(learned)
    with Memory(tmp_path / "b.mem", policy=rmm.rmm(k=2, start=reranker), encoder="hashing") as other:
        other.add_many(LINES[3:])
        assert other.get(first_of(other)[0]).text == "line four"


def test_repeated_and_uncited_rewards_do_not_change_the_reranker(tmp_path: Path) -> None:
    memory, _ = lived(tmp_path / "a.mem")
    with memory:
        learned = reranker_of(memory).for_query.copy()
        for reply in ("four", ""):
            for _ in range(4):
                with memory.episode("which line is it") as episode:
                    episode.search()
                    if reply:
                        episode.act(reply)
                    episode.reward(1.0)
        for _ in range(4):
            episode.reward(0.0)
        assert reranker_of(memory).for_query == pytest.approx(learned)


def test_rollback_of_an_episode_restores_the_reranker(tmp_path: Path) -> None:
    memory, _ = lived(tmp_path / "a.mem")
    with memory:
        before = reranker_of(memory).for_query.copy()
        snapshot = memory.snapshot()
        for _ in range(2):
            with memory.episode("which line is it") as episode:
                episode.search()
                episode.act("none [NO_CITE]")
                episode.reward(0.0)
        assert reranker_of(memory).for_query != pytest.approx(before)
        memory.rollback(since=snapshot)
        assert reranker_of(memory).for_query == pytest.approx(before)


def test_settings_out_of_range_and_a_start_of_another_encoder_are_refused() -> None:
    for setting in ({"temperature": 0.0}, {"rate": -1.0}, {"batch": 0}, {"pool": 0}, {"k": 0}):
        with pytest.raises(InvalidPolicy):
            rmm.rmm(**setting)
    start = rmm.Reranker()
    start.for_query = start.for_items = np.zeros((3, 3))
    with Memory(policy=rmm.rmm(start=start), encoder="hashing") as memory:
        memory.add("a line")
        with pytest.raises(InvalidPolicy, match="this encoder"):
            memory.search("a line")


SESSION = (
    {"role": "user", "content": "I adopted a cat called Miso last week. Thanks!"},
    {"role": "assistant", "content": "How nice."},
    {"role": "user", "content": "I work as a nurse in Lyon. My cat Miso sleeps a lot."},
)


def by_first_word(summary: str, near: object) -> tuple[str, str] | None:
    """Merge what is about the cat."""
    for item, _ in near:  # type: ignore[attr-defined]
        if "cat" in item.key and "cat" in summary:
            return item.id, f"{item.key} {summary}"
    return None


def test_topics_have_a_summary_as_key_and_their_turns_as_text(tmp_path: Path) -> None:
    with Memory(tmp_path / "a.mem", policy="rmm", encoder="hashing") as memory:
        before = memory.snapshot()
        cat, nurse = rmm.reflect(memory, SESSION, decide=by_first_word, session="s1")[::-1]
        assert cat.key == "I adopted a cat called Miso last week. My cat Miso sleeps a lot."
        assert cat.metadata["turns"] == ["s1#0", "s1#2"]
        assert cat.text.splitlines() == [f"user: {SESSION[0]['content']}", f"user: {SESSION[2]['content']}"]
        assert nurse.key == "I work as a nurse in Lyon."
        assert {hit.id for hit in memory.search("where does she work")} == {cat.id, nurse.id}
        tired = rmm.reflect(memory, SESSION[2:], lambda _: [("The cat is tired", [0])], by_first_word, session="s2")
        assert [item.metadata["turns"] for item in tired] == [["s1#0", "s1#2", "s2#0"]]
        assert not memory.get(cat.id).open
        memory.rollback(since=before)
        assert len(memory) == 0


def test_topics_merge_above_a_cosine_and_invalid_ones_are_refused(tmp_path: Path) -> None:
    with Memory(tmp_path / "a.mem", encoder="hashing") as memory:
        item = memory.add_many(["a turn"], key="I like tea", metadata={"turns": ["s#0"]})[0]
        assert nearest_topic("I love tea", [(item, 0.6)]) == (item.id, "I like tea I love tea")
        assert nearest_topic("I love tea", [(item, 0.4)]) is None
        assert nearest_topic("I love tea", []) is None
        with pytest.raises(InvalidAdvice, match="there are 3"):
            rmm.reflect(memory, SESSION, lambda _: [("a topic", [3])])
        assert len(memory) == 1
