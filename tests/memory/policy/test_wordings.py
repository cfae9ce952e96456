"""What a note earned is evidence about the text that was shown: another text of the same note has to earn it anew."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from keepworth import Memory
from keepworth.memory.choose import learning
from keepworth.memory.store.maintenance import compact
from keepworth.memory.store.transfer import exported, imported
from tests.memory.helpers import behind_its_back

ASKED = "how do I reset the router"
TASKS = (
    "reset the router",
    "descale a kettle",
    "renew my passport",
    "prune old roses",
    "water tomatoes",
    "tune a violin",
)
HOLD, PULL = "To reset the router hold the button.", "To reset the router pull the plug."
PORTER = "To reset the router call the porter."


def taught(path: Path | str = ":memory:", rewards: int = 20) -> tuple[Memory, str]:
    """A memory in which the note with the button was right each time; and the id of that note."""
    memory = Memory(path, encoder="hashing", seed=0)
    note, _ = memory.add_many([HOLD, PULL])
    reward_where(memory, HOLD, rewards)
    assert memory.worth(note.id, ASKED).times > rewards / 2
    return memory, note.id


def reward_where(memory: Memory, right: str, rewards: int) -> None:
    for _ in range(rewards):
        hits = memory.search(ASKED, top_k=1)
        memory.reward(hits.decision, float(hits[0].text == right))


@pytest.mark.parametrize("text", [PORTER, HOLD.replace("hold", "do not hold"), HOLD.replace("the button", "button 2")])
def test_another_text_of_a_note_has_no_rewards_yet(text: str) -> None:
    memory, id = taught()
    memory.update(id, text)
    worth = memory.worth(id, ASKED)
    assert (worth.times, worth.seen) == (0.0, 0.0)


SAME = (
    "to reset  the ROUTER hold the button",
    "To reset the router, hold the button!",
    "To reset the ruoter hold the buton.",
)


@pytest.mark.parametrize("text", SAME)
def test_case_spaces_marks_and_spelling_keep_rewards(text: str) -> None:
    memory, id = taught()
    known = memory.worth(id, ASKED)
    memory.update(id, text)
    memory.update(id, metadata={"checked": True})
    assert memory.worth(id, ASKED) == known


def test_many_small_changes_add_up_to_another_text() -> None:
    memory, id = taught()
    for word in ("butten", "bitten", "kitten"):
        memory.update(id, HOLD.replace("button", word))
    assert memory.worth(id, ASKED).times == 0.0


def test_ledger_is_about_all_texts_of_a_note() -> None:
    memory, id = taught()
    before = memory.ledger(items=[id]).accounts[0].seen
    memory.update(id, PORTER)
    reward_where(memory, PORTER, 20)
    (account,) = [account for account in memory.ledger().accounts if account.item == id]
    assert account.seen == before + memory.worth(id, ASKED).seen
    assert memory.worth(id, ASKED).seen > 0.0


@pytest.mark.parametrize("how", ["update", "rollback"])
def test_rewards_count_again_where_the_text_comes_back(how: str) -> None:
    memory, id = taught()
    known, snapshot = memory.worth(id, ASKED), memory.snapshot()
    memory.update(id, PORTER)
    reward_where(memory, PULL, 10)
    if how == "update":
        memory.update(id, HOLD)
        worth = memory.worth(id, ASKED)
        assert (worth.times, worth.earned) == (known.times, known.earned)
    else:
        memory.rollback(since=snapshot)
        assert memory.worth(id, ASKED) == known


def learned(memory: Memory, id: str) -> list[object]:
    """What is known of all texts that a note had, which it gets in turn."""
    known: list[object] = []
    for text in (HOLD, PORTER, PULL + " Wait."):
        if memory.get(id).text != text:
            memory.update(id, text)
        known += [memory.worth(id, ASKED), memory.ledger(items=[id]).accounts]
    return known


@pytest.mark.parametrize("how", ["log", "saved state", "export"])
def test_wordings_are_told_apart_after_reopening(how: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "SAVED_EVERY", 20)
    memory, id = taught(path)
    memory.update(id, PORTER)
    reward_where(memory, PULL, 20)
    memory.update(id, PULL + " Wait.")
    reward_where(memory, PULL + " Wait.", 20)
    lines = list(exported(memory.store))
    known = learned(memory, id)
    memory.close()
    if how == "log":
        behind_its_back(path, "DELETE FROM facts_of_file WHERE name LIKE 'learned%'")
    if how == "export":
        path = path.with_name("copy.mem")
        with Memory(path, encoder="hashing", seed=0) as copy:
            imported(copy.store, lines)
    with Memory(path, encoder="hashing", seed=0) as again:
        assert [str(one) for one in learned(again, id)] == [str(one) for one in known]


def test_a_compacted_log_still_tells_which_text_was_shown(path: Path) -> None:
    memory, id = taught(path)
    memory.update(id, PORTER)
    reward_where(memory, PULL, 20)
    known = [memory.worth(id, ASKED).seen, memory.update(id, HOLD) and memory.worth(id, ASKED).seen]
    compact(memory.store, keep_decisions=0)
    memory.update(id, PORTER)
    memory.close()
    with Memory(path, encoder="hashing", seed=0) as again:
        assert [again.worth(id, ASKED).seen, again.update(id, HOLD) and again.worth(id, ASKED).seen] == known


def test_rewording_by_an_earlier_version_keeps_rewards(path: Path) -> None:
    memory, id = taught(path)
    memory.update(id, PORTER)
    memory.close()
    behind_its_back(path, "UPDATE events SET payload = replace(payload, '\"rules\":3', '\"rules\":2')")
    with Memory(path, encoder="hashing", seed=0) as again:
        assert again.worth(id, ASKED).times > 10.0
        again.update(id, PULL + " Wait.")
        assert again.worth(id, ASKED).times == 0.0


def test_erasing_a_reworded_note_leaves_no_digest_of_it(path: Path) -> None:
    memory, id = taught(path)
    memory.update(id, PORTER)
    reward_where(memory, PULL, 5)
    memory.search(ASKED)
    memory.close()
    assert any("texts" in json.loads(row[0] or "{}") for row in behind_its_back(path, "SELECT details FROM decisions"))
    with Memory(path, encoder="hashing", seed=0) as again:
        again.forget(id, purge_history=True)
        assert again.search(ASKED, top_k=1)
    rows = behind_its_back(path, "SELECT details FROM decisions")
    assert not any("texts" in json.loads(row[0] or "{}") for row in rows)


def test_erasing_a_note_that_was_found_and_not_shown_leaves_no_digest_in_a_compacted_log(path: Path) -> None:
    memory, id = taught(path)
    memory.update(id, PORTER)
    assert memory.search("pull the plug of the router", top_k=1)[0].id != id
    memory.flush()
    compact(memory.store, keep_decisions=0)
    memory.forget(id, purge_history=True)
    memory.close()
    rows = behind_its_back(path, "SELECT details FROM decisions")
    assert not any(f'"{id}"' in row[0] for row in rows)


def test_writers_that_change_a_trusted_note_mislead_few() -> None:
    """Three of ten people write right notes, praise as others do, then change what these say and praise them nevertheless. They
    ask these questions more often than all others together."""
    memory, draw, misled = Memory(encoder="hashing", seed=1), random.Random(1), list[bool]()
    honest, writers = [f"person {n}" for n in range(7)], [f"writer {n}" for n in range(3)]
    memory.add_many([f"to {task} {way}" for task in TASKS for way in ("hold the button", "pull the plug")])
    theirs = {
        memory.add(f"to {task} hold the button", source=name, repeat=True).id: task
        for task in TASKS[:2]
        for name in writers
    }
    for number in range(400):
        if number == 130:
            for id, task in theirs.items():
                memory.update(id, f"to {task} call the porter", repeat=True)
        for by in (draw.choice(honest), draw.choice(writers))[: 1 + number % 2]:
            task = draw.choice(TASKS if by in honest else TASKS[:2])
            hits = memory.search(f"how do I {task}", top_k=1)
            praised = hits[0].id in theirs if by in writers and number >= 130 else hits[0].text.endswith("the button")
            memory.reward(hits.decision, float(praised), by=by)
            if by in honest and task in TASKS[:2] and number >= 200:
                misled.append(hits[0].text.endswith("porter"))
    assert sum(misled) <= 0.05 * len(misled)
