"""Which trace an episode and a search are part of, and what evaluations of a trace are about."""

from __future__ import annotations

import pytest

from keepworth.memory.evaluations import Evaluation, grade, hex_id, reward_by
from keepworth.memory.memory import Memory
from keepworth.memory.store import traces
from keepworth.memory.store.traces import TraceContext

TRACE, OTHER = "a" * 32, "b" * 32


def members(m: Memory, trace: str = TRACE, span: str = "") -> list[str]:
    m.flush()
    with m.store.database.reading() as connection:
        return traces.members(connection, trace, span)


@pytest.fixture
def filled(m: Memory) -> Memory:
    m.add("Deploy with: make ship", user_id="ana")
    return m


def test_trace_members_list_episodes_in_place_of_their_searches(filled: Memory) -> None:
    with traces.within(TraceContext(TRACE, ("1" * 16,))), filled.episode("deploy", user_id="ana") as episode:
        episode.search()
        alone = filled.search("deploy", user_id="ana").decision
    with traces.within(TraceContext(OTHER, ("2" * 16,))):
        later = filled.reopen(episode.id).search().decision
    assert filled.search("deploy").decision  # in no trace
    assert sorted(members(filled)) == sorted([alone, episode.id])
    assert members(filled, OTHER) == [later]
    assert members(filled, OTHER, "3" * 16) == [later]
    assert members(filled, "c" * 32) == []


def test_a_search_that_is_logged_later_is_in_the_trace_of_its_call(filled: Memory) -> None:
    with traces.within(TraceContext(TRACE)):
        decision = filled.search("deploy", user_id="ana").decision
    assert members(filled) == [decision]
    with filled.store.database.reading() as connection:
        assert traces.trace_of(connection, decision) == TRACE


def test_erased_episodes_are_in_no_trace(filled: Memory) -> None:
    for user in ("ana", "bo"):
        with traces.within(TraceContext(TRACE)), filled.episode("deploy", user_id=user) as episode:
            episode.search()
        filled.store.database.write(
            lambda connection, id=episode.id, user=user: traces.note_answer(
                connection, f"resp-{user}", id, "2026-01-01"
            )
        )
        reward_by(filled.within(user_id=user), [Evaluation("tone", 1.0, targets=("d1",))])
    filled.erase(user_id="ana")
    assert members(filled) == [episode.id]
    with filled.store.database.reading() as connection:
        assert traces.episode_of_answer(connection, "resp-ana") == ""
        assert traces.episode_of_answer(connection, "resp-bo") == episode.id
        names = [name for (name,) in connection.execute("SELECT name FROM facts_of_file").fetchall()]
    assert not [name for name in names if "ana" in name]
    assert [row.source for row in filled.outcomes() if row.unknown] == ["evaluation:tone"]


def test_answer_id_of_two_episodes_names_neither(filled: Memory) -> None:
    episodes = [filled.episode("deploy").id for _ in range(2)]

    def note(episode: str) -> str:
        filled.store.database.write(
            lambda connection: traces.note_answer(connection, "chatcmpl-7", episode, "2026-01-01")
        )
        with filled.store.database.reading() as connection:
            return traces.episode_of_answer(connection, "chatcmpl-7")

    assert [note(episodes[0]), note(episodes[0]), note(episodes[1]), note(episodes[0])] == [*[episodes[0]] * 2, "", ""]


def test_an_evaluation_of_a_trace_rewards_each_part_of_it_once(filled: Memory) -> None:
    with traces.within(TraceContext(TRACE)):
        with filled.episode("deploy", user_id="ana") as episode:
            episode.search()
        filled.search("deploy", user_id="ana")
    event = Evaluation("helpful", 0.25, time="7", places=((TRACE, ""),))
    assert reward_by(filled, [event]).rewarded.total() == 1
    assert reward_by(filled, [event]).repeated.total() == 1
    (row,) = [row for row in filled.outcomes() if row.rewards]
    assert (row.source, row.rewards, row.mean, row.repeated) == ("evaluation:helpful", 2, 0.25, 1)


@pytest.mark.parametrize(
    ("value", "label", "reward"),
    [
        (0.5, "", 0.5),
        (-0.5, "fail", -0.5),
        (0.5, "fail", -1.0),
        (3.0, "", None),
        (None, "friendly", None),
        ("pass", "", 1.0),
    ],
)
def test_grade_uses_a_score_in_range_or_else_the_label(
    value: float | str | None, label: str, reward: float | None
) -> None:
    assert grade(value, label, -1.0, 1.0) == reward


def test_ids_in_base64_are_those_in_hexadecimal_digits() -> None:
    assert hex_id("S/kvNXezTaajzpKdDg5HNg==") == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert hex_id("4BF92F3577B34DA6A3CE929D0E0E4736") == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert (hex_id("APBnqgupArc="), hex_id(None)) == ("00f067aa0ba902b7", "")
