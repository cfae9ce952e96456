"""Search by words in a file: what is read is bounded, what is found is what BM25 over everything would find."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.memory.engine import lexical_overlap
from keepworth.memory.errors import InvalidText, Purged
from keepworth.memory.item import ALL
from keepworth.memory.memory import Memory
from keepworth.memory.search import index, scope_words
from keepworth.memory.search.index import K1, B, CorpusStatistics
from keepworth.memory.search.scope_words import ScopeWords
from keepworth.memory.search.terms import (
    asked_terms,
    languages,
    only_latin,
    term_count,
    terms,
    terms_and_languages,
)
from keepworth.memory.store import decision_log, derived, fts5, log, transaction, undo, words
from keepworth.memory.store.connection import WantedRows, select
from keepworth.memory.store.derived import Derived
from keepworth.records import Operation, OperationKind
from tests.memory.helpers import in_another_thread

COMMON = ["the", "and", "of"]


def test_joint_lookup_of_common_words_keeps_its_budget():
    statistics = CorpusStatistics(1000, 9000, {"the": 900, "and": 500, "of": 400, "in": 200})
    # 1000 * 0.4 * 0.5 * 0.2 = 40 rows, ranked for 100; 1100 postings, passed for 165.
    assert words.joint_proposal(statistics, 1.0, 265) == (["in", "of", "and"], 1.0)
    rarest, part = words.joint_proposal(statistics, 1.0, 53)
    assert (len(rarest), round(part, 9)) == (3, 0.2)
    assert words.joint_proposal(CorpusStatistics(0, 0, {}), 1.0) == ([], 1.0)


def test_query_of_common_words_finds_the_best_old_row(m: Memory, monkeypatch):
    monkeypatch.setattr(words, "POSTINGS", 30)
    best = m.add("the of and").id
    others = [(n, COMMON[n % 3], COMMON[(n + n // 3) % 3]) for n in range(600)]
    m.add_many([f"{one} number {n} {other} of all that is told here" for n, one, other in others])
    assert m.search("and the of", top_k=1, mode="lexical")[0].id == best
    assert len({hit.id for hit in m.search("and the of", top_k=200, mode="lexical")}) == 200


@settings(deadline=None)
@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(1, 10_000), max_size=8), st.floats(0.0, 1.0))
def test_proposal_keeps_its_budget_or_reports_it(frequency, share):
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


def test_query_of_common_words_answers_in_every_scope(crowded: Memory):
    for scope in ({}, {"user_id": "ana"}, {"user_id": "bo"}):
        assert len(crowded.search("the and of", top_k=5, mode="lexical", **scope)) == 5, scope
    assert {hit.item.scope.user for hit in crowded.search("of the", mode="lexical", user_id="ana")} == {"ana"}


def test_journal_tail_of_rewards_hides_no_items(crowded: Memory):
    hits = crowded.search("the", mode="lexical", top_k=1)
    for _ in range(100):
        crowded.reward(hits.decision, 1.0)
    assert len(crowded.search("the and of", top_k=5, mode="lexical")) == 5


def test_lexical_top_ten_equals_full_bm25(m: Memory):
    draw = random.Random(0)
    names = [f"w{n}" for n in range(400)]
    weights = [1 / (n + 1) for n in range(400)]
    texts = [f"{' '.join(draw.choices(names, weights, k=12))} n{n}" for n in range(800)]
    m.add_many(texts)
    queries = [" ".join(draw.choices(names, weights, k=4)) for _ in range(40)]
    assert lexical_overlap(m, texts, queries) > 0.99  # of equals, either may come tenth


AWKWARD = ["", "  ", "?!", "\x00", "the" * 5000, '" OR words MATCH "', "text : *", "NEAR(a b)", "日本"]


@pytest.mark.parametrize("query", AWKWARD)
def test_queries_without_words_find_no_items(query, crowded: Memory):
    assert crowded.search(query, mode="lexical") == []
    assert len(crowded.search(query + " number", mode="lexical", top_k=3)) == 3


told = st.lists(st.sampled_from(["cat", "dog", "oslo", "red", "the"]), min_size=1, max_size=6).map(" ".join)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(["add", "update", "delete"]), told, st.integers(1, 12)), max_size=25), told)
def test_search_is_independent_of_the_index_lag(monkeypatch, sequence, query):
    answers = []
    for behind in (1, 4, 1000):
        monkeypatch.setattr(transaction, "TAIL", behind)
        with Memory(":memory:", encoder=None) as m:
            for verb, text, number in sequence:
                kind = OperationKind(verb.upper())
                targets = () if verb == "add" else (f"m{number}",)
                m.apply(Operation(kind, targets, "" if verb == "delete" else text), user_id=f"u{number % 2}")
            answers.append(
                [[hit.id for hit in m.search(query, mode="lexical", user_id=u or ALL)] for u in ("", "u0", "u1")]
            )
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
                score += weights[term] * count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * len(listed) / mean))
        out.append((n, score))
    return out


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(TEXTS), min_size=1, max_size=8),
    st.lists(st.sampled_from(TEXTS), min_size=1, max_size=4),
    st.integers(1, 3),
)
def test_cached_terms_give_the_same_scores(stored, questions, held):
    ranked = index.RankedTexts()
    texts = dict(enumerate(stored, start=1))
    languages = frozenset().union(*(terms_and_languages(text)[1] for text in stored))
    before, index.HELD = index.HELD, held
    try:
        for question in [*questions, *questions]:
            asked = asked_terms(question, languages)
            frequency = {term: sum(term in terms(text) for text in stored) for term in asked}
            known = CorpusStatistics(len(stored), sum(len(terms(text)) for text in stored), frequency)
            assert ranked.scores(texts, asked, known, only_latin(languages)) == plainly(texts, asked, known)
    finally:
        index.HELD = before


@pytest.mark.parametrize("language", ["english", "german"])
def test_language_is_guessed_once_for_texts_of_one_language(language, m: Memory, monkeypatch):
    one = [text for text in TEXTS if text and text.isascii() and terms_and_languages(text)[1] == {language}]
    assert one
    m.add_many(one)
    hits = m.search(" ".join(one), top_k=20, mode="lexical")
    assert len(hits) == len(one)
    m.store.derived.ranked_texts = index.RankedTexts()
    monkeypatch.setattr("keepworth.memory.search.terms.classify", None)  # would fail
    again = m.search(" ".join(one), top_k=20, mode="lexical")
    assert [(hit.id, hit.score) for hit in again] == [(hit.id, hit.score) for hit in hits]


@pytest.mark.parametrize("limit", [0, 5, 10_000])
def test_admission_by_list_and_by_function_agree(limit, m: Memory, monkeypatch):
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


# Words of single scopes in memory: the same scores as the index beside, whatever was written meanwhile, and by whom.


WORDS = st.sampled_from(["ana", "oslo", "tea", "cafe", "rain", "night"])
TEXT = st.lists(WORDS, min_size=1, max_size=6).map(" ".join)


def found(
    held: ScopeWords, scopes: list[int], query: str, documents: int, count: int = 3
) -> list[tuple[int, float]] | None:
    terms = asked_terms(query, ())
    return held.scores(scopes, terms, CorpusStatistics(documents, 2 * documents, dict.fromkeys(terms, 2)), count)


def test_scope_with_mostly_dead_rows_is_read_again() -> None:
    held = ScopeWords()
    held.put(1, [(1, "tea tea"), (2, "rain")])
    held.change(1, 2, None)
    for number in (3, 4, 5):
        held.change(1, number, f"tea n{number}")
    assert [number for number, _ in found(held, [1], "tea rain", 4) or []] == [1, 3, 4]
    assert found(held, [1, 2], "tea", 4) is None  # the second is not held
    for _ in range(80):
        held.change(1, 3, "tea")
    assert held.missing([1]) == [1]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 20), st.none() | TEXT), max_size=40), st.lists(TEXT, max_size=20), TEXT)
def test_scores_of_a_scope_are_those_of_an_inverted_index(
    changes: list[tuple[int, str | None]], texts: list[str], query: str
) -> None:
    held, now = ScopeWords(), dict[int, str | None](enumerate(texts, 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scope_words, "LATER", 3)  # so that the table is made anew now and then
        held.put(7, [(number, text) for number, text in now.items() if text is not None])
        for number, text in changes:
            held.change(7, number, text)
            now[number] = text
            if held.missing([7]):
                held.put(7, [(number, text) for number, text in now.items() if text is not None])
    terms, statistics = asked_terms(query, ()), CorpusStatistics(50, 150, {"tea": 9, "rain": 4, "oslo": 1})
    beside, numbers = index.InvertedIndex(), [number for number, text in now.items() if text is not None]
    for number in numbers:
        beside.add(now[number] or "")
    expected = dict(zip(numbers, beside.scores(terms, statistics).tolist(), strict=True))
    scored = dict(held.scores([7], terms, statistics, 100) or [])
    assert scored == {number: score for number, score in expected.items() if score}


def test_scopes_that_are_searched_in_turn_and_do_not_all_fit_are_not_indexed_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexed: list[int] = []
    put: Any = ScopeWords.put
    monkeypatch.setattr(ScopeWords, "put", lambda held, id, *rest: indexed.append(id) or put(held, id, *rest))
    monkeypatch.setattr(scope_words, "MOST_BYTES", 12_000)
    people = [f"p{number}" for number in range(30)]
    with Memory(tmp_path / "m.mem", encoder=None, policy=None) as memory:
        for person in people:
            memory.add_many([f"{person} drinks tea on day {day}" for day in range(20)], user_id=person)
        for _ in range(4):
            for person in people:
                assert len(memory.search("who drinks tea", user_id=person, top_k=3)) == 3
        held = memory.store.derived.scope_words
        assert 0 < held.bytes <= 12_000
        assert len(indexed) == len(set(indexed)) < len(people)
        # Whoever is searched alone from now on has the place of those who are not.
        before = len(indexed)
        for _ in range(2):
            memory.search("tea", user_id=people[-1])
        assert len(indexed) == before + 1


def shown(memory: Memory, query: str, user: str) -> list[tuple[str, str]]:
    return [(hit.id, hit.text) for hit in memory.search(query, user_id=user or ALL, top_k=5)]


def test_search_of_a_small_scope_reads_only_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Memory(tmp_path / "m.mem", encoder=None, policy=None) as memory:
        for user in ("ana", "bo", "cy"):
            memory.add_many([f"{user} drank tea number {n}" for n in range(derived.SMALL)], user_id=user)
        memory.add("bo drank coffee", user_id="bo")
        looked: list[Any] = []
        best: Any = fts5.Fts5.best
        monkeypatch.setattr(fts5.Fts5, "best", lambda *given, **options: looked.append(1) or best(*given, **options))
        few = memory.search("which tea did she drink", user_id="ana", top_k=200)
        assert (len(few), looked) == (derived.SMALL, [])
        assert len(memory.search("which tea", user_id="bo", top_k=200)) == derived.SMALL
        assert looked, "a person with more is looked up in the index of everybody's"


@pytest.mark.parametrize("small", [0, derived.SMALL])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_cached_searches_equal_those_of_a_fresh_memory(
    small: int, monkeypatch: pytest.MonkeyPatch, data: st.DataObject
) -> None:
    monkeypatch.setattr(derived, "SMALL", small)
    with Memory(":memory:", encoder=None, policy=None) as memory:
        for user in ("ana", "bo"):
            memory.add_many(data.draw(st.lists(TEXT, min_size=1, max_size=4)), user_id=user or ALL)
        mark = memory.snapshot()
        for query in ("tea", "rain"):
            shown(memory, query, "ana")  # from the second time on the scope is held
        for _ in range(data.draw(st.integers(1, 5))):
            items = memory.get_all(user_id="ana")
            verb = data.draw(st.sampled_from(["add", "update", "delete", "supersede", "rollback", "purge"]))
            if verb == "add" or not items:
                memory.add(data.draw(TEXT), user_id=data.draw(st.sampled_from(["ana", "bo", "cy"])))
                continue
            id = data.draw(st.sampled_from(items)).id
            if verb == "update":
                with contextlib.suppress(InvalidText):  # it says that already
                    memory.update(id, text=data.draw(TEXT))
            elif verb == "delete":
                memory.delete(id)
            elif verb == "supersede":
                with contextlib.suppress(InvalidText):
                    memory.supersede(id, data.draw(TEXT))
            elif verb == "rollback":
                with contextlib.suppress(Purged):
                    memory.rollback(since=mark)
            else:
                memory.forget(id, purge_history=True)
            query = data.draw(WORDS)
            again = shown(memory, query, "ana")
            memory.store.reset_caches()
            assert again == shown(memory, query, "ana")


LONG = " ".join(f"word{n}" for n in range(150))
NOTES = st.tuples(WORDS, st.integers(0, 3), st.booleans()).map(lambda of: f"{of[0]} {'tea ' * of[1]}{LONG * of[2]}")


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_rows_ranked_by_held_lengths_are_those_that_the_index_ranks(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    for module, name, value in ((words, "FEW", 0), (words, "RANKED_WHOLE", 0), (derived, "RANKED_FROM", 3)):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(transaction, "TAIL", data.draw(st.sampled_from([1, 4])))
    ranked: list[tuple[list[int] | None, list[int]]] = []
    by_lengths = fts5.RowLengths.best

    def rank(lengths: fts5.RowLengths, connection: Any, terms: list[str], count: int, mask: Any) -> list[int] | None:
        admitted = "" if mask is None else connection.full_text.admit(connection, mask, "rowid")
        by_index = connection.full_text.best(connection, WantedRows(terms, [], 1000, admitted=admitted))
        ranked.append((by_lengths(lengths, connection, terms, 1000, mask), by_index))
        return by_lengths(lengths, connection, terms, count, mask)

    monkeypatch.setattr(fts5.RowLengths, "best", rank)
    file = tmp_path_factory.mktemp("ranked") / "m.mem"
    with Memory(file, encoder=None, policy=None) as memory, Memory(file, encoder=None, policy=None) as other:
        notes = [f"{text} n{n}" for n, text in enumerate(data.draw(st.lists(NOTES, min_size=40, max_size=60)))]
        memory.add_many(notes, metadata=[{"odd": n % 2} for n, _ in enumerate(notes)])
        memory.add("ana drank tea in a cafe in oslo that night, in the rain")
        mark = memory.snapshot()
        for query in ("tea", "rain", "tea"):
            memory.search(query, top_k=2)
        for _ in range(data.draw(st.integers(1, 5))):
            writer, items = data.draw(st.sampled_from([memory, other])), memory.get_all(limit=10)
            verb = data.draw(st.sampled_from(["add", "update", "delete", "rollback", "purge"]))
            if verb == "add" or not items:
                writer.add_many(data.draw(st.lists(NOTES, min_size=1, max_size=6)))
            elif verb == "update":
                with contextlib.suppress(InvalidText):
                    writer.update(data.draw(st.sampled_from(items)).id, text=data.draw(NOTES))
            elif verb == "delete":
                writer.delete(data.draw(st.sampled_from(items)).id)
            elif verb == "rollback":
                with contextlib.suppress(Purged):
                    writer.rollback(since=mark)
            else:
                writer.forget(data.draw(st.sampled_from(items)).id, purge_history=True)
            query = data.draw(WORDS)
            for where in (None, {"odd": 1}):
                memory.search(query, top_k=2, where=where)
    assert ranked
    assert [rows for rows, _ in ranked] == [rows for _, rows in ranked]


def test_overtaken_reader_does_not_reload_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[int] = []
    loaded: Any = Derived._load
    monkeypatch.setattr(Derived, "_load", lambda *given: loads.append(1) or loaded(*given))
    with Memory(tmp_path / "a.mem", encoder="hashing", policy=None) as memory:
        memory.add("tea in Oslo", user_id="ana")
        memory.search("tea", user_id="ana")
        with memory.store.database.reading() as connection:
            select(connection, "SELECT max(seq) FROM events")  # what is seen from here is as of now

            def other() -> None:
                memory.add("more tea", user_id="ana")
                assert len(memory.search("tea", user_id="ana")) == 2

            in_another_thread(other)
            assert [hit.text for hit in memory.search("tea", user_id="ana")] == ["tea in Oslo"]
        assert len(memory.search("tea", user_id="ana")) == 2
    assert len(loads) == 1


def plans(memory: Memory, work: Callable[[Any], object]) -> list[str]:
    """How SQLite carries out every statement of `work`."""
    asked: list[tuple[str, tuple[Any, ...]]] = []
    with memory.store.database.reading() as connection:
        connection.set_exec_trace(lambda cursor, sql, values: asked.append((sql, values or ())) or True)
        work(connection)
        connection.set_exec_trace(None)
        return [row[3] for sql, values in asked for row in select(connection, f"EXPLAIN QUERY PLAN {sql}", values)]


def test_frequent_queries_use_an_index(m: Memory) -> None:
    """Every search that is logged asks whether something was erased: reading the whole journal took 14 ms where it had 100,000
    entries."""
    m.add("tea")
    purges = plans(m, undo.newest_purge)
    assert purges
    assert all("events_by_kind" in plan for plan in purges)
    for table in ("decisions", "events"):
        one = f"SELECT 1 FROM {table} WHERE {decision_log.IN_EPISODE}"
        of_episode = plans(m, lambda connection, one=one: select(connection, one, ("e",)))
        assert of_episode
        assert not any("SCAN" in plan for plan in of_episode)


def test_new_rewards_are_read_without_scanning_scopes(m: Memory) -> None:
    """After a reward the next search read the names of all users: 100 ms where there were 20,000."""
    m.add("tea")
    m.reward(m.search("tea").decision, 1.0)
    news: list[int] = []
    read = plans(m, lambda connection: news.append(len(log.news(connection, m.scope, log.NOTHING))))
    assert news == [1]
    assert any("events_by_kind" in plan for plan in read)
    assert not any("SCAN" in plan for plan in read)


# QueryTerms: words of any script as stems, and questions that find them in other forms.


FACTS = [
    ("english", "Anna is allergic to peanuts.", "allergies"),
    ("english", "We bought a bigger house.", "buying houses"),
    ("german", "Meine Schwester hat zwei Katzen und einen Hund.", "Katze"),
    ("german", "Der Arzt hat mir Tabletten gegeben.", "Tablette"),
    ("french", "Mon frère a mangé des pommes au marché.", "manger pomme"),
    ("french", "Elle travaille dans une bibliothèque.", "travailler"),
    ("spanish", "Compramos dos bicicletas rojas ayer.", "bicicleta comprar"),
    ("spanish", "El perro de mi vecino ladra.", "perros ladrar"),
    ("italian", "I bambini giocano nel giardino della scuola.", "bambino giocare"),
    ("italian", "Abbiamo mangiato pesce fresco.", "pesci"),
    ("portuguese", "Os meninos jogam futebol na praia.", "menino praias"),
    ("portuguese", "Ele escreve cartas longas.", "carta escrever"),
    ("dutch", "Hij kocht drie boeken over schilders.", "boek schilder"),
    ("dutch", "Mijn zus heeft twee katten.", "kat"),
    ("swedish", "Barnen lekte i trädgården hela dagen.", "trädgårdar"),
    ("swedish", "Han arbetar på ett stort sjukhus.", "sjukhusen"),
    ("russian", "Мои кошки живут в большом доме.", "кошка дома"),
    ("russian", "Он работает в больнице врачом.", "больница врач"),
    ("polish", "On pracuje w szpitalu jako lekarz.", "szpital"),
    ("polish", "Lubię stare książki o malarzach.", "książka malarz"),
    ("turkish", "Çocuklar bütün gün bahçede oynadı.", "çocuk bahçe"),
    ("turkish", "Hastanede doktor olarak çalışıyor.", "hastane"),
    ("finnish", "Asumme isossa talossa joen rannalla.", "talo ranta"),
    ("finnish", "Siskoni osti uuden auton.", "auto"),
    ("none", "我妹妹对花生过敏", "花生"),
    *(("none", "先月東京に引っ越しました", "東京"), ("none", "彼は猫を二匹飼っている", "猫")),
    *(("none", "เขาทำงานเป็นหมอที่โรงพยาบาล", "โรงพยาบาล"), ("none", "지난달에 서울로 이사했어요", "서울")),
    ("none", "Party tonight 🎂", "🎂"),
]


@pytest.fixture(scope="module")
def facts() -> Memory:
    filled = Memory(":memory:", encoder=None)
    filled.add_many([text for _, text, _ in FACTS])
    return filled


@pytest.mark.parametrize(("text", "question"), [fact[1:] for fact in FACTS])
def test_a_fact_is_found_by_words_in_other_forms(facts: Memory, text: str, question: str) -> None:
    for word in question.split():
        assert text in [hit.text for hit in facts.search(word, top_k=3, mode="lexical")]


@pytest.mark.parametrize(("language", "text"), [fact[:2] for fact in FACTS if fact[0] != "none"])
def test_language_of_a_sentence_is_recognised(language: str, text: str) -> None:
    assert terms_and_languages(text)[1] == {language}


def test_stems_of_different_languages_are_different_terms() -> None:
    assert "car" not in asked_terms("care", ["italian"])
    assert asked_terms("care", ["italian"]).groups == (("care", "car·it", "care·it"),)
    assert asked_terms("care", []).groups == (("care",),)


def test_english_inflections_share_a_stem() -> None:
    assert terms("allergies") == terms("allergic") == ["allerg"]
    assert terms("She went home") == terms("she goes home")
    assert terms("running ran runs") == ["run"] * 3
    assert asked_terms("the dog", ()).weights == {"the": 0.2, "dog": 1.0}


def test_texts_without_spaces_are_split_into_character_pairs() -> None:
    assert terms("東京タワー") == [*"東京タワー", "東京", "京タ", "タワ", "ワー"]
    assert asked_terms("東京タワー") == ["東京", "京タ", "タワ", "ワー"]
    assert asked_terms("猫") == ["猫"]
    assert terms("AirPods 東京") == ["airpod", "東", "京", "東京"]


@given(st.text(max_size=60))
def test_text_matches_itself_as_a_query(text: str) -> None:
    own = terms(text)
    assert term_count(text) == len(own)
    assert all(term and " " not in term for term in own)
    for group in asked_terms(text, languages()).groups:
        assert set(group) & set(own), group


def test_numbers_and_codes_have_no_language(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking which takes as long as everything else."""
    monkeypatch.setattr("keepworth.memory.search.terms.classify", lambda text: pytest.fail("asked"))
    assert terms_and_languages("B12 4711 x9-c3po") == (["b12", "4711", "x9", "c3po"], {"english"})
