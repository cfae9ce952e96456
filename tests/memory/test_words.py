"""Search by words in a file: what is read is bounded, what is found is what BM25 over everything would find."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.memory.engine import lexical_overlap
from keepworth.episodes import Operation, OperationKind
from keepworth.memory.memory import Memory
from keepworth.memory.search.index import CorpusStatistics, term_score
from keepworth.memory.search.terms import asked_terms, only_latin, terms, terms_and_languages
from keepworth.memory.store import fts5, transaction, words

COMMON = ["the", "and", "of"]


def test_rows_that_hold_several_common_words_are_looked_for_as_far_as_can_be_afforded():
    statistics = CorpusStatistics(1000, 9000, {"the": 900, "and": 500, "of": 400, "in": 200})
    # 1000 * 0.4 * 0.5 * 0.2 = 40 rows, ranked for 100; 1100 postings, passed for 165.
    assert words.joint_proposal(statistics, 1.0, 265) == (["in", "of", "and"], 1.0)
    rarest, part = words.joint_proposal(statistics, 1.0, 53)
    assert (len(rarest), round(part, 9)) == (3, 0.2)
    assert words.joint_proposal(CorpusStatistics(0, 0, {}), 1.0) == ([], 1.0)


def test_a_query_of_common_words_only_finds_the_best_row_however_old(m: Memory, monkeypatch):
    monkeypatch.setattr(words, "POSTINGS", 30)
    best = m.add("the of and").id
    others = [(n, COMMON[n % 3], COMMON[(n + n // 3) % 3]) for n in range(600)]
    m.add_many([f"{one} number {n} {other} of all that is told here" for n, one, other in others])
    assert m.search("and the of", top_k=1, mode="lexical")[0].id == best
    assert len({hit.id for hit in m.search("and the of", top_k=200, mode="lexical")}) == 200


@settings(deadline=None)
@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(1, 10_000), max_size=8), st.floats(0.0, 1.0))
def test_a_proposal_keeps_to_its_budget_or_says_so(frequency, share):
    chosen, affordable = words.proposal(frequency, share, 1000)
    assert bool(chosen) == bool(frequency)
    price = min(1.0, share + words.SKIPPING)
    total = price * sum(frequency[term] for term in chosen)
    assert affordable == (total <= 1000) or abs(total - 1000) < 1e-6  # added up in another order
    assert affordable or len(chosen) == 1
    left = [frequency[term] for term in frequency if term not in chosen]
    assert all(count >= frequency[term] for count in left for term in chosen)


@pytest.fixture
def crowded(m: Memory, monkeypatch) -> Memory:
    """Three hundred texts of common words; the oldest ten are Ana's. Reading thirty postings is all that is affordable."""
    monkeypatch.setattr(words, "POSTINGS", 30)
    m.add_many([f"the and of number {n}" for n in range(10)], user_id="ana")
    m.add_many([f"the and of number {n}" for n in range(10, 300)], user_id="bo")
    return m


def test_a_query_of_common_words_only_answers_in_every_scope(crowded: Memory):
    for scope in ({}, {"user_id": "ana"}, {"user_id": "bo"}):
        hits = crowded.search("the and of", top_k=5, mode="lexical", **scope)
        assert len(hits) == 5, scope
    assert {hit.item.scope.user for hit in crowded.search("of the", mode="lexical", user_id="ana")} == {"ana"}


def test_a_journal_that_ends_in_other_things_than_items_hides_none(crowded: Memory):
    hits = crowded.search("the", mode="lexical", top_k=1)
    for _ in range(100):
        crowded.reward(hits.decision, 1.0)
    assert len(crowded.search("the and of", top_k=5, mode="lexical")) == 5


def test_the_top_ten_are_those_of_bm25_over_everything(m: Memory):
    draw = random.Random(0)
    names = [f"w{n}" for n in range(400)]
    weights = [1 / (n + 1) for n in range(400)]
    texts = [f"{' '.join(draw.choices(names, weights, k=12))} n{n}" for n in range(800)]
    m.add_many(texts)
    queries = [" ".join(draw.choices(names, weights, k=4)) for _ in range(40)]
    assert lexical_overlap(m, texts, queries) > 0.99  # of equals, either may come tenth


AWKWARD = ["", "  ", "?!", "\x00", "the" * 5000, '" OR words MATCH "', "text : *", "NEAR(a b)", "日本"]


@pytest.mark.parametrize("query", AWKWARD)
def test_awkward_queries_find_nothing_and_harm_nothing(query, crowded: Memory):
    assert crowded.search(query, mode="lexical") == []
    assert len(crowded.search(query + " number", mode="lexical", top_k=3)) == 3


told = st.lists(st.sampled_from(["cat", "dog", "oslo", "red", "the"]), min_size=1, max_size=6).map(" ".join)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(["add", "update", "delete"]), told, st.integers(1, 12)), max_size=25), told)
def test_how_far_the_index_is_behind_changes_no_search(monkeypatch, sequence, query):
    answers = []
    for behind in (1, 4, 1000):
        monkeypatch.setattr(transaction, "TAIL", behind)
        with Memory(":memory:", encoder=None) as m:
            for verb, text, number in sequence:
                kind = OperationKind(verb.upper())
                targets = () if verb == "add" else (f"m{number}",)
                m.apply(Operation(kind, targets, "" if verb == "delete" else text), user_id=f"u{number % 2}")
            answers.append([[hit.id for hit in m.search(query, mode="lexical", user_id=u)] for u in ("", "u0", "u1")])
    assert answers[0] == answers[1] == answers[2]


def test_long_texts_do_not_wait_for_the_index(m: Memory):
    for text in ("a cat", "a dog " * transaction.LONG, "a bird"):
        m.add(text)
        with m.store.database.reading() as connection:
            waiting = m.store.derived.corpus(connection)
        held = [sum(word in words for *_, words in waiting.tail.values()) for word in ("dog", "cat")]
        assert held == [0, text == "a cat"], text[:10]
    m.update(m.search("bird")[0].id, "a bird " * transaction.LONG)
    assert len(m.search("cat dog bird")) == 3


def test_readers_beside_a_writer_see_the_newest_words_at_once(path):
    with Memory(path, encoder=None) as m, Memory(path, encoder=None) as other:
        for n in range(2 * transaction.TAIL + 5):
            id = m.add(f"line {n} says w{n}").id
            assert [hit.id for hit in other.search(f"w{n}")] == [id]
        m.delete(id)
        assert len(other.search(f"w{n}")) == 0


TEXTS = [
    "Anna is allergic to peanuts and walnuts.",
    "allergies",
    "Peanut butter, peanut oil; peanuts",
    "w17 w4 w17",
    "Meine Schwester hat zwei Katzen und einen Hund.",
    "Katze",
    "Elle travaille dans une bibliothèque.",
    "Мои кошки живут в большом доме.",
    "我妹妹对花生过敏 peanuts",
    "",
    "the of and the",
]


def plainly(texts, asked, statistics):
    """BM25 as the definition says it, term by term, each text read anew."""
    weights, mean = statistics.weights(asked)
    out = []
    for n, text in texts.items():
        listed, score = terms(text), 0.0
        for term, count in Counter(listed).items():
            if term in weights:
                score += term_score(count, len(listed), weights[term], mean)
        out.append((n, score))
    return out


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(TEXTS), min_size=1, max_size=8),
    st.lists(st.sampled_from(TEXTS), min_size=1, max_size=4),
    st.integers(1, 3),
)
def test_terms_that_are_remembered_or_of_one_language_give_the_same_scores(stored, questions, held):
    ranked = words.RankedTexts()
    texts = dict(enumerate(stored, start=1))
    languages = frozenset().union(*(terms_and_languages(text)[1] for text in stored))
    before, words.HELD = words.HELD, held
    try:
        for question in [*questions, *questions]:
            asked = asked_terms(question, languages)
            frequency = {term: sum(term in terms(text) for text in stored) for term in asked}
            known = CorpusStatistics(len(stored), sum(len(terms(text)) for text in stored), frequency)
            found = ranked.scores(texts, asked, known, only_latin(languages))
            assert found == plainly(texts, asked, known)
    finally:
        words.HELD = before


@pytest.mark.parametrize("language", ["english", "german"])
def test_where_texts_are_of_one_language_nobody_asks_which(language, m: Memory, monkeypatch):
    one = [text for text in TEXTS if text and text.isascii() and terms_and_languages(text)[1] == {language}]
    assert one
    m.add_many(one)
    hits = m.search(" ".join(one), top_k=20, mode="lexical")
    assert len(hits) == len(one)
    m.store.derived.ranked_texts = words.RankedTexts()
    monkeypatch.setattr("keepworth.memory.search.terms.classify", None)  # would fail
    again = m.search(" ".join(one), top_k=20, mode="lexical")
    assert [(hit.id, hit.score) for hit in again] == [(hit.id, hit.score) for hit in hits]


@pytest.mark.parametrize("limit", [0, 5, 10_000])
def test_rows_are_admitted_alike_however_the_file_is_told(limit, m: Memory, monkeypatch):
    """Those that are kept by a function of ours, those that are left out by a list: what is found is the same."""
    for module, name, value in ((words, "RANKED_WHOLE", 0), (fts5, "LEFT_OUT", limit), (transaction, "TAIL", 4)):
        monkeypatch.setattr(module, name, value)
    m.add_many([f"tea number {n}" for n in range(40)], metadata={"n": 0})
    ids = [m.add(f"tea again {n}", metadata={"n": n}).id for n in range(20)]
    m.delete(ids[3])
    found = m.search("tea again", top_k=100, mode="lexical", where={"n": {"$ne": 7}})
    assert {hit.id for hit in found} == {item.id for item in m.get_all()} - {ids[7]}
    few = m.search("again", top_k=5, mode="lexical", where={"n": {"$gte": 18}})
    assert {hit.id for hit in few} == set(ids[18:])
