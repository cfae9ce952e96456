"""A question is answered wherever it stands beside what was pasted, by every mode and encoder, and for a bounded number of
passes of the encoder."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from keepworth.memory.by_name import encoder
from keepworth.memory.memory import Memory
from tests.slow import slow_but_for

NOTES = (
    "The spare key of the summer house lies under the blue flowerpot.",
    "Priya takes over the on-call rota from Monday.",
    "The staging database is restored from the nightly dump every Sunday.",
    "Our landlord wants the rent on the third working day.",
    "Tomas brings his own espresso machine to every offsite.",
    "The accountant needs all receipts before the tenth of April.",
    "Grandmother's lentil soup is thickened with a grated potato.",
    "The choir rehearses in the old fire station.",
    "Deploys are frozen while the payments team migrates its ledger.",
    "The vet said that Milo must not eat salmon.",
    "Retries of the upload worker are limited to five.",
    "Cache entries of the session store live for thirty minutes.",
    "The wedding is at the lighthouse, with forty guests.",
    "My bicycle has a lock with the number of our first flat.",
    "The heating engineer comes on the twelfth of November.",
    "Whoever runs the quarterly review books the room with the round table.",
    "备用钥匙放在厨房的蓝色花盆下面。",
    "会计师要求在四月十日之前提交所有收据。",
    "การประชุมทีมจัดขึ้นที่ร้านกาแฟข้างสถานี",
)
QUESTIONS = (
    ("Where is the spare key of the summer house?", 0),
    ("What must Milo not eat?", 9),
    ("when does the heating engineer come", 14),
    ("Tell me where the choir rehearses.", 7),
)
WIDE = (("备用钥匙放在哪里？", 16), ("团队会议在哪里举行 การประชุมทีมจัดที่ไหน", 18))


def log(n: int) -> str:
    level = ("INFO", "WARN", "DEBUG")[n % 3]
    return f"2026-03-{n % 28 + 1:02d}T11:{n % 60:02d}:07Z {level} upload-{n % 7} worker session cache took {37 * n % 911} ms"


def code(n: int) -> str:
    return (
        f"def load_{n}(cache, session):\n    if session is None:\n        return cache[{n}]\n    return list(session)\n"
    )


def yaml(n: int) -> str:
    return f"- name: worker-{n}\n  cache:\n    path: /srv/session/{n}\n    retries: {n % 6}\n    enabled: true"


def trace(n: int) -> str:
    return f'  File "/srv/app/worker_{n}.py", line {n * 7 % 400}, in upload\n    return self.cache.get({n}, retries={n % 5})'


def table(n: int) -> str:
    return f"{n},worker-{n % 9},2026-03-{n % 28 + 1:02d},{n * 17 % 900}.50,open,session cache"


def record(n: int) -> str:
    return json.dumps({"id": n, "worker": {"session": n * 7, "cache": [n, n + 1]}, "state": "open"}) + ","


TOLD = (
    "The harbour was dug by hand in the years after the great storm.",
    "Every morning two boats carried stone from the quarry at the cape.",
    "A mason was paid by the block and slept in a hut of planks.",
    "By winter the mole had reached the second buoy.",
    "The town council argued for a month over the price of lime.",
)


def prose(n: int) -> str:
    return " ".join(TOLD[(n + step) % len(TOLD)] for step in range(3))


KINDS: dict[str, Callable[[int], str]] = {
    "log": log, "code": code, "yaml": yaml, "trace": trace, "csv": table, "json": record, "prose": prose,
}  # fmt: skip
PLACES = ("front", "middle", "end")


def pasted(kind: str, size: int, question: str, place: str) -> str:
    lines: list[str] = []
    while sum(map(len, lines)) < size:
        lines.append(KINDS[kind](len(lines)))
    at = {"front": 0, "middle": len(lines) // 2, "end": len(lines)}[place]
    before, after = "\n".join(lines[:at]), "\n".join(lines[at:])
    return "\n\n".join(filter(None, (before, question, after)))


@cache
def notes(name: str) -> Memory:
    memory = Memory(":memory:", encoder=encoder(name), policy=None)
    memory.add_many(NOTES)
    return memory


def place_of(memory: Memory, query: str, answer: int, **options: Any) -> int:
    texts = [hit.text for hit in memory.search(query, top_k=len(NOTES), **options)]
    return texts.index(NOTES[answer]) + 1 if NOTES[answer] in texts else len(NOTES) + 1


def assert_no_worse_than_the_question_alone(kind: str, name: str) -> None:
    memory = notes(name)
    for number, (question, answer) in enumerate((*QUESTIONS, *WIDE)):
        for place in PLACES:
            size = (300, 1000, 4000, 20_000)[(number + PLACES.index(place)) % 4]
            query = pasted(kind, size, question, place)
            for mode in ("hybrid", "lexical", "dense") if name != "default" else ("hybrid",):
                alone = place_of(memory, question, answer, mode=mode)
                beside = place_of(memory, query, answer, mode=mode)
                assert beside <= alone, (place, size, mode, question)


@pytest.mark.parametrize("kind", KINDS)
def test_question_beside_a_pasted_text_finds_its_answer(kind: str):
    assert_no_worse_than_the_question_alone(kind, "hashing:256")


@pytest.mark.model
@pytest.mark.parametrize("kind", slow_but_for(["log", "prose"], KINDS))
def test_question_beside_a_pasted_text_finds_its_answer_by_the_default_encoder(kind: str):
    assert_no_worse_than_the_question_alone(kind, "default")


ASKED = (
    ("Sag mir bitte, wo der Ersatzschlüssel des Büros liegt.", "Der Ersatzschlüssel des Büros liegt beim Pförtner."),
    ("Подскажи, где лежит запасной ключ от дачи.", "Запасной ключ от дачи лежит под горшком."),
    ("Yedek anahtarın nerede olduğunu söyle.", "Yedek anahtar mavi saksının altında."),
    ("Powiedz, gdzie wisi klucz zapasowy do piwnicy.", "Klucz zapasowy do piwnicy wisi za drzwiami."),
    ("कार की अतिरिक्त चाबी कहाँ है", "कार की अतिरिक्त चाबी रसोई की दराज में है।"),
    ("I can't remember where the spare key of the summer house is.", NOTES[0]),
    ("Please look up the deadline of the accountant for receipts.", NOTES[5]),
    ("Explain who takes over the on-call rota.", NOTES[1]),
)
SHAPES: dict[str, Callable[[str], str]] = {
    "before a signature": lambda asked: (
        f"{prose(0)}\n\n{prose(1)}\n\n{asked}\n\nBest regards,\nAnna Schmidt\nHarbour Council, Stone Street 5, Port"
    ),
    "beside another question": lambda asked: f"How tall is the tower? {asked}\n{pasted('log', 3000, '', 'front')}",
    "below a list of questions": lambda asked: (
        "\n".join(f"Q: How was block {n} dug?\nA: By mason {n}." for n in range(60)) + f"\n\n{asked}"
    ),
    "in the line of a log": lambda asked: f"{' '.join(map(log, range(40)))} {asked}",
    "in the line before a log": lambda asked: f"{asked} {' '.join(map(log, range(40)))}",
}


@cache
def notes_of_many_languages() -> Memory:
    memory = Memory(":memory:", encoder=encoder("hashing:256"), policy=None)
    memory.add_many(dict.fromkeys([*NOTES, *(note for _, note in ASKED)]))
    return memory


@pytest.mark.parametrize("shape", SHAPES)
def test_request_without_a_question_mark_is_found_in_a_long_message(shape: str):
    memory = notes_of_many_languages()
    for asked, note in ASKED:
        for mode in ("hybrid", "dense"):
            assert memory.search(SHAPES[shape](asked), top_k=1, mode=mode)[0].text == note, (mode, asked)


class Counting:
    """The hashing encoder, which counts what it encodes."""

    def __init__(self) -> None:
        self.inner = encoder("hashing:64")
        self.identity = self.inner.identity
        self.texts: list[str] = []

    def encode(self, texts: Any) -> Any:
        self.texts += texts
        return self.inner.encode(texts)


def test_encoder_passes_are_bounded_for_long_questions():
    counting = Counting()
    memory = Memory(":memory:", encoder=counting, policy=None)
    memory.add_many(NOTES)
    memory.search("warm up")
    for query, most in (("Where is the spare key?", 1), (pasted("prose", 150_000, QUESTIONS[0][0], "end"), 8)):
        counting.texts.clear()
        assert memory.search(query, top_k=1)[0].text == NOTES[0]
        assert 0 < len(counting.texts) <= most


def test_pasted_text_is_searched_if_the_question_is_vague():
    memory = Memory(":memory:", encoder="hashing:256", policy=None)
    note = "LedgerTimeout in settle_batch: the replica lags, restart it."
    memory.add_many([*NOTES, note])
    raised = "LedgerTimeout: settle_batch did not answer"
    query = "\n".join(
        ["Traceback (most recent call last):", *map(trace, range(6)), raised, "", "what do we do about this?"]
    )
    assert note in [hit.text for hit in memory.search(query, top_k=2)]
