"""Agents that others' frameworks run, unchanged but for the address, beside the real packages: `make test-hubs`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from examples.tiny_caller import DOES, rows, write_model

from keepworth import train
from keepworth.records import StopReason
from keepworth.training.run_folder import RunFolder
from tests.learning.agents_of_others import add
from tests.learning.intercepted import Scripted, rollouts
from tests.learning.test_interception import ROWS, adds, drawn_in


@pytest.fixture
def model(tmp_path: Path) -> Scripted:
    return Scripted(tmp_path / "model", adds)


def langchain(row: dict[str, Any]) -> str:
    """LangChain's `create_agent`."""
    agents, chat = pytest.importorskip("langchain.agents"), pytest.importorskip("langchain_openai")
    tools = pytest.importorskip("langchain.tools")
    made = agents.create_agent(
        chat.ChatOpenAI(model="gpt-5"),
        tools=[tools.tool(description="Adds two numbers.")(add)],
        system_prompt="Use the tool.",
    )
    done = made.invoke({"messages": [{"role": "user", "content": row["prompt"]}]})
    return str(done["messages"][-1].content)


def openai_agents(row: dict[str, Any]) -> str:
    """OpenAI's Agents SDK, by its responses; its own traces are off."""
    agents = pytest.importorskip("agents")
    agents.set_tracing_disabled(True)
    model = agents.OpenAIResponsesModel("gpt-5", agents_client())
    made = agents.Agent("adder", instructions="Use the tool.", tools=[agents.function_tool(add)], model=model)
    return str(agents.Runner.run_sync(made, row["prompt"]).final_output)


def openai_agents_by_chat(row: dict[str, Any]) -> str:
    agents = pytest.importorskip("agents")
    agents.set_tracing_disabled(True)
    model = agents.OpenAIChatCompletionsModel("gpt-5", agents_client())
    made = agents.Agent("adder", instructions="Use the tool.", tools=[agents.function_tool(add)], model=model)
    return str(agents.Runner.run_sync(made, row["prompt"]).final_output)


def agents_client() -> Any:
    import openai

    return openai.AsyncOpenAI()


def langchain_anthropic(row: dict[str, Any]) -> str:
    agents, chat = pytest.importorskip("langchain.agents"), pytest.importorskip("langchain_anthropic")
    tools = pytest.importorskip("langchain.tools")
    made = agents.create_agent(
        chat.ChatAnthropic(model_name="claude-opus"), tools=[tools.tool(description="Adds two numbers.")(add)]
    )
    done = made.invoke(
        {"messages": [{"role": "system", "content": "Use the tool."}, {"role": "user", "content": row["prompt"]}]}
    )
    content = done["messages"][-1].content
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


FRAMEWORKS = {
    langchain: ("langchain.agents", "langchain_openai"),
    langchain_anthropic: ("langchain.agents", "langchain_anthropic"),
    openai_agents: ("agents",),
    openai_agents_by_chat: ("agents",),
}
"""The packages that each agent needs."""


@pytest.mark.parametrize("agent", FRAMEWORKS)
def test_an_agent_of_a_framework_is_recorded_as_it_was_drawn(model: Scripted, agent: Any) -> None:
    for package in FRAMEWORKS[agent]:
        pytest.importorskip(package)
    agent_of_one = rollouts(model, agent, ROWS, seconds=60.0)
    assert [(episode.answer, episode.reward, episode.stop) for episode in agent_of_one] == [
        (row["answer"], 1.0, StopReason.COMPLETED) for row in ROWS
    ], [episode.errors for episode in agent_of_one]
    assert drawn_in(agent_of_one) == sorted(model.drawn)
    for episode in agent_of_one:
        first, second = episode.segments
        assert second.context[: len(first.context) + len(first.ids)] == first.context + first.ids


def looks_up_with_langchain(row: dict[str, Any]) -> str:
    agents, chat = pytest.importorskip("langchain.agents"), pytest.importorskip("langchain_openai")
    tools = pytest.importorskip("langchain.tools")

    def price(item: str) -> str:
        return str(row["prices"].get(item, "nothing"))

    made = agents.create_agent(chat.ChatOpenAI(model="any"), tools=[tools.tool(description=DOES)(price)])
    return str(made.invoke({"messages": [{"role": "user", "content": row["prompt"]}]})["messages"][-1].content)


def looks_up_with_openai_agents(row: dict[str, Any]) -> str:
    agents = pytest.importorskip("agents")
    agents.set_tracing_disabled(True)

    def price(item: str) -> str:
        return str(row["prices"].get(item, "nothing"))

    tool = agents.function_tool(price, description_override=DOES)
    model = agents.OpenAIChatCompletionsModel("any", agents_client())
    return str(agents.Runner.run_sync(agents.Agent("shopper", tools=[tool], model=model), row["prompt"]).final_output)


@pytest.mark.parametrize("agent", [looks_up_with_langchain, looks_up_with_openai_agents])
def test_the_model_inside_an_agent_of_a_framework_learns(tmp_path: Path, agent: Any) -> None:
    pytest.importorskip("langchain" if "langchain" in agent.__name__ else "agents")
    how: dict[str, Any] = {"train": "full", "learning_rate": 1e-3, "steps": 12, "max_tokens": 8, "threads": 1}
    run = train(
        rows(), agent=agent, reward="exact_match", model=write_model(tmp_path / "tiny"), runs=tmp_path / "runs", **how
    )
    measured = {row["arm"]: row["mean"] for row in RunFolder.open(run.path).evals() if row["split"] == "rows, test"}
    assert measured["untrained"] < 0.3
    assert measured["trained"] >= 0.8
