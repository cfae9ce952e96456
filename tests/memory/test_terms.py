"""QueryTerms: words of any script as stems, and questions that find them in other forms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepworth.memory.memory import Memory
from keepworth.memory.search.terms import asked_terms, languages, term_count, terms, terms_and_languages, weight

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
def memory() -> Memory:
    filled = Memory(":memory:", encoder=None)
    filled.add_many([text for _, text, _ in FACTS])
    return filled


@pytest.mark.parametrize(("text", "question"), [fact[1:] for fact in FACTS])
def test_a_fact_is_found_by_words_in_other_forms(memory: Memory, text: str, question: str) -> None:
    for word in question.split():
        assert text in [hit.text for hit in memory.search(word, top_k=3, mode="lexical")]


@pytest.mark.parametrize(("language", "text"), [fact[:2] for fact in FACTS if fact[0] != "none"])
def test_the_language_of_a_sentence_is_told(language: str, text: str) -> None:
    assert terms_and_languages(text)[1] == {language}


def test_stems_of_different_languages_are_different_terms() -> None:
    assert "car" not in asked_terms("care", ["italian"])
    assert asked_terms("care", ["italian"]).groups == (("care", "car·it", "care·it"),)
    assert asked_terms("care", []).groups == (("care",),)


def test_english_forms() -> None:
    assert terms("allergies") == terms("allergic") == ["allerg"]
    assert terms("She went home") == terms("she goes home")
    assert terms("running ran runs") == ["run"] * 3
    assert weight("the") == 0.2
    assert weight("dog") == 1.0


def test_pairs_of_characters() -> None:
    assert terms("東京タワー") == [*"東京タワー", "東京", "京タ", "タワ", "ワー"]
    assert asked_terms("東京タワー") == ["東京", "京タ", "タワ", "ワー"]
    assert asked_terms("猫") == ["猫"]
    assert terms("AirPods 東京") == ["airpod", "東", "京", "東京"]


@given(st.text(max_size=60))
def test_a_text_asked_for_is_found_in_itself(text: str) -> None:
    own = terms(text)
    assert term_count(text) == len(own)
    assert all(term and " " not in term for term in own)
    for group in asked_terms(text, languages()).groups:
        assert set(group) & set(own), group


def test_numbers_and_codes_are_of_no_language(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking which takes as long as everything else."""
    monkeypatch.setattr("keepworth.memory.search.terms.classify", lambda text: pytest.fail("asked"))
    assert terms_and_languages("B12 4711 x9-c3po") == (["b12", "4711", "x9", "c3po"], {"english"})
