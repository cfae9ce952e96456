"""What the notes of a memory are worth, on one screen: `Memory.review` and `keepworth memory review`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from keepworth import Memory, policy
from keepworth.cli.main import app
from keepworth.memory.choose.ledger import Account, Balance
from keepworth.memory.choose.review import review_items
from keepworth.memory.errors import InvalidPolicy

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


def test_a_memory_without_notes_or_without_a_policy_says_so() -> None:
    assert str(Memory(encoder="hashing").review()) == "There are no notes."
    with pytest.raises(InvalidPolicy):
        Memory(encoder="hashing", policy=None).review()


def test_a_note_that_harms_comes_first_with_what_it_cost() -> None:
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
