"""The story of a word problem stands in a memory: what the model would need to answer is there, and nowhere in its prompt."""

from __future__ import annotations

from keepworth.methods.benchmarks._arithmetic import arithmetic, problems
from keepworth.methods.recipes.arithmetic import Config, head, memory_of, system


def test_a_story_and_its_question_are_the_problem() -> None:
    for problem in problems("svamp"):
        assert f"{problem.story} {problem.asked}" == problem.question


def test_each_memory_holds_the_story_among_as_many_as_were_asked_for() -> None:
    tasks = arithmetic("svamp", "dev", remembered=True)
    memory = memory_of(8, tasks, seed=0)
    first = 0
    for task in tasks:
        bank = memory(task)
        texts = [item.text for item in bank.items()]
        assert len(texts) == 8
        assert task.sessions[0].turns[0].text in texts
        hits = bank.search(task.input, 1, mode="lexical")
        first += [hit.item.text for hit in hits] == [task.sessions[0].turns[0].text]
        assert memory(task).content_hash() == bank.content_hash()
    assert first > len(tasks) / 2  # the question's own words find it, more often than not


def test_what_is_asked_for_is_shown_in_the_examples() -> None:
    assert "> recall: Mary pens\n= Mary had 7 pens." in head("calculator", remembered=True)
    assert "recall" not in head("calculator")


def test_settings_of_the_memory_have_an_effect() -> None:
    found = system(Config(answer="calculator", stories=4, max_tokens=10))
    assert found.row_budget == 3 * 2 * 10
    assert set(found.test["svamp test questions"].ways) == {"", "no_tool"}
