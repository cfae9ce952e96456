"""What the notes of a memory are worth, on one screen: `Memory.review` and `keepworth memory review`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from keepworth import Client, Memory, policy
from keepworth.cli.main import app
from keepworth.memory.choose.ledger import Account, Balance
from keepworth.memory.choose.review import review_items
from keepworth.memory.errors import InvalidFilter, InvalidPolicy, UnknownItem
from keepworth.serving.access import ROLES, new_access
from keepworth.serving.client import ServerProblem
from keepworth.serving.memory_server import MemoryServer
from tests.serving.callers import served

server = served(encoder="hashing")
PLUG, BUTTON, CAT = "reset the router: pull the plug", "reset the router: hold the button", "the cat is called Tom"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A memory in which one note earns everything, one comes along, and one was never shown."""
    path = tmp_path_factory.mktemp("review") / "agent.mem"
    often = policy("default", withhold=0.3, budget=1.0)
    with Memory(path, encoder="hashing", policy=often, seed=5) as memory:
        memory.add_many([BUTTON, PLUG])
        for number in range(480):
            with memory.episode("help the caller") as episode:
                hits = episode.search(f"the router of caller {number} is stuck, model {7919 * number}", top_k=2)
                episode.signal(command="make test", failed=not any(hit.text == PLUG for hit in hits))
        memory.add(CAT)
    return path


def test_each_note_is_in_one_group_with_its_evidence(file: Path) -> None:
    with Memory(file, encoder="hashing") as memory:
        review = memory.review()
    groups = {reviewed.item.text: reviewed.group for reviewed in review.items}
    assert groups == {PLUG: "earns", BUTTON: "undecided", CAT: "never needed"}
    (earning,) = review.of("earns")
    assert 0.0 < earning.low < earning.points <= earning.high <= 100.0
    assert "more than without it" in earning.sentence
    assert str(review).startswith(f"Of 3 notes, by 480 rewarded turns: 1 earned {earning.points:.1f} points of 100 (")
    assert str(review).endswith("1 undecided, 1 never needed.")


def test_the_command_prints_groups_and_the_sum(file: Path) -> None:
    result = CliRunner().invoke(app, ["memory", "review", "--file", str(file)])
    assert result.exit_code == 0, result.output
    assert result.stdout.index("Earns:") < result.stdout.index("Undecided:") < result.stdout.index("Never needed:")
    assert "Of 3 notes, by 480 rewarded turns" in result.stderr
    lines = CliRunner().invoke(app, ["memory", "review", "--file", str(file), "--json"]).stdout.splitlines()
    records = [json.loads(line) for line in lines]
    assert [record["group"] for record in records] == ["earns", "undecided", "never needed"]
    assert records[1]["item"] == "m1"


def test_review_of_an_empty_memory_or_without_a_policy() -> None:
    assert str(Memory(encoder="hashing").review()) == "There are no notes."
    with pytest.raises(InvalidPolicy):
        Memory(encoder="hashing", policy=None).review()


def test_harmful_note_comes_first_with_its_cost() -> None:
    memory = Memory(encoder="hashing")
    harms, helps = memory.add_many([BUTTON, PLUG])
    accounts = [
        Account(harms.id, 60, 40, -0.4, -0.4, -0.6, -0.2, 0.5, 1.0, 0.0, 0.3, 0.6, 50.0),
        Account(helps.id, 60, 40, 0.2, 0.2, 0.1, 0.3, 0.5, 1.0, 0.0, 0.8, 0.6, 100.0),
    ]
    review = review_items([helps, harms], Balance(tuple(accounts), 100, 1.0))
    assert [(one.item.id, one.group, one.points) for one in review.items] == [
        (harms.id, "costs", pytest.approx(-20.0)),  # 0.4 less in 50 of 100 turns
        (helps.id, "earns", pytest.approx(20.0)),
    ]
    assert str(review) == (
        "Of 2 notes, by 100 rewarded turns: 1 cost you 20.0 points of 100 (10.0 to 30.0), "
        "1 earned 20.0 points of 100 (10.0 to 30.0)."
    )


def test_review_states_how_many_turns_a_verdict_needs() -> None:
    memory = Memory(encoder="hashing")
    item = memory.add(PLUG)

    def needs(shown: int, withheld: int, effect: float, *, span: float = 1.0) -> str:
        account = Account(item.id, shown, withheld, effect, effect, -1.0, 1.0, 0.9, span, 0.0, 0.5, 0.5, 900.0)
        return review_items([item], Balance((account,), 1000, span)).items[0].needs

    assert needs(0, 0, 0.0).startswith(
        "A decision needs 20 turns where chance shows it and 20 where chance leaves it out."
    )
    assert needs(90, 8, 0.2) == (
        "A decision needs 12 more turns where chance leaves it out. As often as they came so far, that takes some 1,500 turns."
    )
    assert needs(19, 19, 0.2).startswith(
        "A decision needs 1 more turn where chance shows it and 1 where chance leaves it out."
    )
    more = Account(item.id, 90, 30, 0.2, 0.2, -1.0, 1.0, 0.9, 1.0, 0.0).needed
    assert f"A decision needs about {more:,} more turns where chance decides whether it is shown." in needs(90, 30, 0.2)
    assert "would not decide" in needs(90, 30, 1e-9)
    assert "All outcomes were the same" in needs(90, 30, 0.0, span=0.0)


def memory_of_two() -> tuple[Memory, str, str]:
    memory = Memory(encoder="hashing", policy=policy("default", withhold=0.5, budget=1.0), seed=3)
    one, other = memory.add_many([BUTTON, PLUG])
    return memory, one.id, other.id


def test_settle_is_atomic_and_can_be_undone() -> None:
    memory, one, other = memory_of_two()
    cat = memory.add(CAT).id
    before = [memory.get(id) for id in (one, other, cat)]
    retired, kept, pinned = memory.settle(retire=[one], keep=[other], pin=[cat])
    assert (retired.deleted, kept.metadata, pinned.metadata) == (True, {"kept": "never needed"}, {"pinned": True})
    assert {revision.source for id in (one, other, cat) for revision in memory.history(id)[1:]} == {"review"}
    assert [(one.item.id, one.group, one.settled) for one in memory.review().items] == [
        (cat, "always shown", False),
        (other, "never needed", True),
    ]
    assert memory.settle(undo=[one]) == before[:1]
    memory.rollback(source="review")
    assert [memory.get(id) for id in (one, other, cat)] == before
    with pytest.raises(UnknownItem, match="no review has changed"):
        memory.settle(undo=[other])
    for wrong in ({"retire": [one], "pin": ["m99"]}, {"retire": [one], "undo": [other]}, {"retire": [one, one]}, {}):
        with pytest.raises((UnknownItem, InvalidFilter)):
            memory.settle(**wrong)
    assert [memory.get(id) for id in (one, other, cat)] == before, "a bad id changes nothing"


def test_pinned_item_is_always_shown() -> None:
    memory, _, other = memory_of_two()

    def turns(most: int) -> list[bool]:
        shown = []
        for number in range(most):
            with memory.episode("help the caller") as episode:
                hits = episode.search(f"the router of caller {number} is stuck, model {7919 * number}", top_k=2)
                shown.append(any(hit.id == other for hit in hits))
                episode.reward(float(number % 3 > 0))
        return shown

    assert turns(200).count(False) > 5, "it is left out by chance before"
    memory.settle(pin=[other])
    assert all(turns(100))
    assert memory.search("something else altogether").text.splitlines()[0] == f"- {PLUG}"
    memory.settle(undo=[other])
    assert turns(200).count(False) > 3


def test_review_command_settles_and_undoes(file: Path, tmp_path: Path) -> None:
    copy = tmp_path / "a.mem"
    copy.write_bytes(file.read_bytes())

    def review(*words: str) -> Any:
        return CliRunner().invoke(app, ["memory", "review", "--file", str(copy), *words])

    ids = {json.loads(line)["text"]: json.loads(line)["item"] for line in review("--json").stdout.splitlines()}
    done = review("--retire", ids[BUTTON], "--pin", ids[CAT], "--keep", ids[PLUG], "--json")
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [ids[BUTTON], ids[PLUG], ids[CAT]]
    groups = {json.loads(line)["text"]: json.loads(line) for line in review("--json").stdout.splitlines()}
    assert {text: (record["group"], record["settled"]) for text, record in groups.items()} == {
        PLUG: ("earns", True),
        CAT: ("always shown", False),
    }
    assert review("--undo", ids[BUTTON]).exit_code == 0
    assert BUTTON in review().stdout
    assert "no review has changed" in str(review("--undo", ids[BUTTON]).exception)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals")
def test_review_on_a_terminal_asks_about_each_note(file: Path, tmp_path: Path) -> None:
    import pty
    import termios

    copy = tmp_path / "a.mem"
    copy.write_bytes(file.read_bytes())
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "keepworth", "memory", "review", "--file", str(copy)]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    printed = b""
    # One is kept, the next retired, that is undone, and passed over; the last is pinned.
    for note, key in ((1, b"k"), (2, b"r"), (3, b"u"), (2, b"\r"), (3, b"p")):
        while f"({note} of 3".encode() not in printed or b"q ends" not in printed.split(f"({note} of 3".encode())[-1]:
            printed += os.read(ours, 1000)
        printed = b""
        while termios.tcgetattr(ours)[3] & termios.ICANON:  # what comes before a key is read is thrown away
            time.sleep(0.01)
        os.write(ours, key)
    assert process.wait(60) == 0
    os.close(ours)
    with Memory(copy, encoder="hashing") as memory:
        settled = {item.text: dict(item.metadata) for item in memory.get_all()}
    assert settled == {PLUG: {"kept": "earns"}, BUTTON: {}, CAT: {"pinned": True}}


def test_settle_over_http_needs_the_write_role(server: MemoryServer) -> None:
    with Client(server.url, server.tokens.add(new_access(tenant="review", roles=ROLES))) as client:
        one, other = client.add_many([BUTTON, PLUG])
        retired, pinned = client.settle(retire=[one.id], pin=[other.id])
        assert (retired.deleted, pinned.pinned) == (True, True)
        assert client.settle(undo=[one.id]) == [one]
        review = client.review()
        assert review.summary == str(review) == "Of 2 notes, by 0 rewarded turns: 1 always shown, 1 never needed."
        with Client(server.url, server.tokens.add(new_access(tenant="review", roles=("read",)))) as reader:
            assert reader.review() == review
            with pytest.raises(ServerProblem, match="write"):
                reader.settle(retire=[one.id])
