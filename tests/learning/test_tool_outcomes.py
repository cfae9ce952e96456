"""What the tools of an agent told is its reward: `reward="signals"`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from keepworth import train
from keepworth.base.errors import KeepworthError
from keepworth.memory.signals import find_signal, sum_up
from keepworth.training.front_door import make_recipe
from keepworth.training.recipe import Origin
from keepworth.training.tool_outcomes import ToolOutcomes
from tests.learning.intercepted import write_chat_model
from tests.learning.test_trained_programs import SIZES, episodes, rows

openai = pytest.importorskip("openai")
PASSED, FAILED = "5 passed in 0.1s", "Exit code 1\n1 failed, 4 passed in 0.1s"


def reward_of(names: list[str]) -> float | None:
    return sum_up(map(find_signal, names))


def chat(command: str, output: str) -> dict[str, Any]:
    function = {"name": "bash", "arguments": json.dumps({"command": command})}
    return {
        "messages": [
            {"role": "user", "content": "Mend the build."},
            {"role": "assistant", "tool_calls": [{"id": "t1", "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": "t1", "content": output},
        ]
    }


def anthropic(command: str, output: str) -> dict[str, Any]:
    use = {"type": "tool_use", "id": "t1", "name": "bash", "input": {"command": command}}
    return {
        "messages": [
            {"role": "user", "content": "Mend the build."},
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": output}]},
        ]
    }


def responses(command: str, output: str) -> dict[str, Any]:
    return {
        "input": [
            {"role": "user", "content": "Mend the build."},
            {
                "type": "function_call",
                "call_id": "t1",
                "name": "bash",
                "arguments": json.dumps({"command": command}),
            },
            {"type": "function_call_output", "call_id": "t1", "output": output},
        ]
    }


@pytest.mark.parametrize("call", [chat, anthropic, responses])
def test_results_of_tools_are_read_in_every_format(call: Any) -> None:
    outcomes = ToolOutcomes()
    for body in (call("pytest -q", FAILED), call("pytest -q", FAILED), call("ls", "a.py"), call("pytest -q", PASSED)):
        outcomes.read(body)  # the second one is sent again, as after a failed answer
    assert outcomes.names == ["check-failed", "check-mended"]
    assert reward_of(outcomes.names) == 1.0
    assert reward_of(outcomes.names[:1]) == 0.0


@pytest.mark.parametrize("body", [{}, {"messages": "hello"}, {"messages": [1, None, "x"]}, {"input": "hello"}])
def test_call_without_results_of_tools_gives_no_reward(body: dict[str, Any]) -> None:
    outcomes = ToolOutcomes()
    outcomes.read(body)
    assert outcomes.names == []
    assert reward_of(outcomes.names) is None


def test_reward_weighs_families_by_the_table() -> None:
    """A check that passed (.25) beside a tool that failed last (.15)."""
    assert reward_of(["check-passed", "tool-succeeded", "tool-failed"]) == pytest.approx(0.25 / 0.4)


def runs_tests(row: dict[str, Any]) -> str:
    """Runs tests that pass where the answer of the model has an even length."""
    client = openai.OpenAI()
    asked: list[Any] = [{"role": "user", "content": row["prompt"]}]
    answer = str(client.chat.completions.create(model="any", messages=asked).choices[0].message.content)
    output = FAILED if len(answer) % 2 else PASSED
    client.chat.completions.create(model="any", messages=chat("make test", output)["messages"])
    return answer


def test_training_by_signals_rewards_passed_checks(tmp_path: Path) -> None:
    model = str(write_chat_model(tmp_path / "model"))
    run = train(rows(), agent=runs_tests, reward="signals", model=model, runs=tmp_path / "runs", name="tests", **SIZES)
    played = episodes(run)
    assert len(played) == 2 * 2 * 3
    for episode in played:
        assert episode.signals == (("check-failed",) if len(episode.segments[0].text) % 2 else ("check-passed",))
        assert [(term.name, term.value) for term in episode.rewards] == [
            ("signals", float(episode.signals == ("check-passed",)))
        ]
    assert len({episode.reward for episode in played}) == 2


def test_signals_without_a_program_are_refused_before_loading(tmp_path: Path) -> None:
    with pytest.raises((KeepworthError, ValueError), match="give a program as the agent"):
        train(rows(), reward="signals", model="none", runs=tmp_path)


def test_command_line_takes_signals_by_name(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows()))
    recipe = make_recipe(Origin("", tasks=str(file), reward=("signals",), agent="python agent.py"))
    assert recipe.given.reward == ["signals"]
    with pytest.raises(KeepworthError, match="signals"):
        make_recipe(Origin("", tasks=str(file), reward=("signal",)))
