"""Memory as tools: the model searches and writes in its own lines, in its own fork, and all of it is recorded."""

from __future__ import annotations

from keepworth.memory.overlay import Bank
from keepworth.records import StopReason, Task
from keepworth.records.episode import OperationKind, ParseStatus
from keepworth.training.rows import rows_of
from keepworth.worlds.driver import Play, play
from keepworth.worlds.tool_caller import NOTHING, MemoryToolCaller
from keepworth.worlds.tool_use import ToolUse
from tests.rollouts.scripted_model import ScriptedModel

ASK = Task("ask/1", "ask", "Where does Ann live?", ("Oslo",), verifier="exact_match")


def memory_of(task: Task) -> Bank:
    bank = Bank.empty(None)
    bank.add("Ann lives in Oslo.")
    return bank


def agent_of(task: Task, memory: Bank | None) -> MemoryToolCaller:
    assert memory is not None
    return MemoryToolCaller(memory, max_tokens=60, calls=2, mode="lexical")


HOW = Play(lambda task: ToolUse([], turns=2), agent_of, memory_of)


def test_it_searches_writes_and_answers_in_one_sequence() -> None:
    def says(prompt: str, number: int) -> str:
        lines = prompt.splitlines()
        if "= written" in prompt:
            return " answer: Oslo\n"
        if "= Ann lives in Oslo." in prompt:
            return " remember: Somebody asked for Ann.\n"
        assert lines[0] == "recall: query - What memory holds about it."
        assert lines[1] == "remember: fact - Writes it into memory."
        return " recall: Ann\n"

    (group,) = play(ScriptedModel(says), [ASK], HOW, n=2)
    for episode in group.episodes:
        assert (episode.reward, episode.stop) == (1.0, StopReason.COMPLETED)
        texts = [" recall: Ann\n", " remember: Somebody asked for Ann.\n", " answer: Oslo\n"]
        assert [segment.text for segment in episode.segments] == texts
        assert [shown.text for shown in episode.shown] == ["Ann lives in Oslo."]
        (event,) = episode.operations
        assert (event.operation.kind, event.operation.text) == (OperationKind.ADD, "Somebody asked for Ann.")
        before, written, after = (segment.memory_before for segment in episode.segments)
        assert before == written == group.memory_snapshot == episode.memory_snapshot
        assert episode.segments[1].memory_after == after != before
    # Every turn continues the one before: one row an episode, in which the results that were read are not trained on.
    rows = rows_of([group], ("policy",), 3)
    assert rows.batch.shape[0] == 2
    assert int(rows.batch.mask.sum()) == sum(len(s.ids) for e in group.episodes for s in e.segments)


def test_writes_stay_in_the_fork_of_the_episode() -> None:
    roots: list[Bank] = []

    def kept(task: Task) -> Bank:
        roots.append(memory_of(task))
        return roots[-1]

    def says(prompt: str, number: int) -> str:
        if "recall: Bob" in prompt:
            return f" answer: {prompt.splitlines()[-2].removeprefix('= ')}\n"
        return " recall: Bob\n" if "= written" in prompt else " remember: Bob rows.\n"

    (group,) = play(ScriptedModel(says), [ASK], Play(HOW.environment, agent_of, kept), n=2)
    assert [episode.answer for episode in group.episodes] == ["Bob rows."] * 2
    (root,) = roots
    assert [item.text for item in root.items()] == ["Ann lives in Oslo."]
    assert root.content_hash() == group.memory_snapshot


def test_memory_calls_are_bounded_and_empty_results_are_stated() -> None:
    seen: list[str] = []

    def says(prompt: str, number: int) -> str:
        seen.append(prompt)
        return " Recall: zebra\n"

    ((episode,),) = [group.episodes for group in play(ScriptedModel(says), [ASK], HOW)]
    assert f"= {NOTHING}" in seen[1]
    assert "= Begin with one of answer:" in seen[3]  # two calls, then the line was the environment's
    assert len(episode.segments) == 6
    assert episode.stop is StopReason.PARSE_ERROR


def test_invalid_write_is_reported_without_effect() -> None:
    def says(prompt: str, number: int) -> str:
        return " answer: x\n" if "= not written" in prompt else " remember:\n"

    ((episode,),) = [group.episodes for group in play(ScriptedModel(says), [ASK], HOW)]
    (event,) = episode.operations
    assert event.status is ParseStatus.INVALID
    assert episode.segments[-1].memory_before == episode.memory_snapshot
