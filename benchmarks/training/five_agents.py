"""Five agents with loops of others, or as clients' own pages write them, train a tiny model by reward, unchanged.

    python -m benchmarks.training.five_agents [--seeds 3] [--steps 12] [--only WORDS] [--json FILE]

A shop's prices change from question to question, and the model of `examples/tiny_caller.py` mostly says that it does not know
them instead of calling the tool. Each agent trains a model of its own for each seed. Reported are the right answers to questions
that were not trained, before and after, the seconds of the whole call, and how many of the recorded calls hold exactly the ids
and log-probabilities that the model drew. A control has the same agent, and coins for rewards.

It needs what `make test-hubs` installs: `.venv-hubs-agents/bin/python -m benchmarks.training.five_agents`. The script of the
shell (`ask.sh`) needs curl and jq alone. With --only, agents of the record that are not measured again stay in it as they are."""

from __future__ import annotations

import json
import random
import re
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest import mock
from weakref import WeakKeyDictionary

from examples.tiny_caller import DOES, PRICE, rows, write_model

from benchmarks.record import arguments, save
from benchmarks.speed.setting import machine
from keepworth import train
from keepworth.models.drawing import Drawing
from keepworth.training.run_folder import RunFolder
from keepworth.training.watch.progress import Progress

GOAL = 0.8
"""The share of right answers that a trained agent reaches."""
TAUGHT = 500
"""For how many steps a model is taught before. After 300, that of seed 1 had not learned to repeat a price."""
SHELL = f"sh {Path(__file__).with_name('ask.sh')}"


def openai_client(row: dict[str, Any]) -> str:
    import openai

    client, messages = openai.OpenAI(), list[Any]([{"role": "user", "content": row["prompt"]}])
    for _ in range(3):
        message = client.chat.completions.create(model="any", messages=messages, tools=[PRICE]).choices[0].message
        messages.append(message)
        if not message.tool_calls:
            return str(message.content)
        for call in message.tool_calls:
            price = row["prices"].get(json.loads(call.function.arguments).get("item"), "nothing")
            messages.append({"role": "tool", "tool_call_id": call.id, "content": price})
    return ""


def anthropic_client(row: dict[str, Any]) -> str:
    import anthropic

    @anthropic.beta_tool(description=DOES)
    def price(item: str) -> str:
        return str(row["prices"].get(item, "nothing"))

    asked: Any = [{"role": "user", "content": row["prompt"]}]
    runner = anthropic.Anthropic().beta.messages.tool_runner(
        model="any", max_tokens=100, tools=[price], messages=asked, max_iterations=3
    )
    return "".join(part.text for part in runner.until_done().content if part.type == "text")


def langchain(row: dict[str, Any]) -> str:
    from langchain.agents import create_agent
    from langchain.tools import tool
    from langchain_openai import ChatOpenAI

    def price(item: str) -> str:
        return str(row["prices"].get(item, "nothing"))

    made = create_agent(ChatOpenAI(model="any"), tools=[tool(description=DOES)(price)])
    asked = {"messages": [{"role": "user", "content": row["prompt"]}]}
    return str(made.invoke(asked, {"recursion_limit": 7})["messages"][-1].content)


def openai_agents(row: dict[str, Any]) -> str:
    import openai

    import agents

    agents.set_tracing_disabled(True)

    def price(item: str) -> str:
        return str(row["prices"].get(item, "nothing"))

    model = agents.OpenAIResponsesModel("any", openai.AsyncOpenAI())
    made = agents.Agent("shopper", tools=[agents.function_tool(price, description_override=DOES)], model=model)
    return str(agents.Runner.run_sync(made, row["prompt"], max_turns=3).final_output)


AGENTS: dict[str, tuple[Callable[[dict[str, Any]], str] | str, tuple[str, ...]]] = {
    "OpenAI's client, with a tool": (openai_client, ("openai",)),
    "OpenAI's Agents SDK, by responses": (openai_agents, ("openai-agents",)),
    "LangChain's create_agent": (langchain, ("langchain", "langchain-openai")),
    "Anthropic's client, its tool runner": (anthropic_client, ("anthropic",)),
    "a script of the shell, with curl and jq": (SHELL, ("curl", "jq")),
}
"""The agents, and the packages or programs that run them."""
WITH_COINS = (openai_client, SHELL)
"""The agents that are also trained with coins for rewards."""


def coin(answer: str, row: dict[str, Any]) -> float:
    """A reward that says nothing."""
    return float(random.Random(f"{answer} {row['prompt']} {time.time_ns()}").random() < 0.5)


class Drawn:
    """Counts what models draw while it is entered: prompts, ids and log-probabilities."""

    def __init__(self) -> None:
        self.samples = Counter[tuple[Any, ...]]()

    def __enter__(self) -> Drawn:
        begin, sample, samples = Drawing.__init__, Drawing.sample, self.samples
        prompts = WeakKeyDictionary[Drawing, list[tuple[int, ...]]]()

        def begun(drawing: Drawing, model: Any, read: Any, *how: Any) -> None:
            prompts[drawing] = [tuple(prompt) for prompt in read]
            begin(drawing, model, read, *how)

        def counted(drawing: Drawing, branch: int) -> Any:
            drawn = sample(drawing, branch)
            samples[prompts[drawing][branch // drawing.group], tuple(drawn.ids), tuple(drawn.logprobs)] += 1
            return drawn

        self._patches = [mock.patch.object(Drawing, "__init__", begun), mock.patch.object(Drawing, "sample", counted)]
        for patch in self._patches:
            patch.start()
        return self

    def __exit__(self, *error: object) -> None:
        for patch in self._patches:
            patch.stop()


def measure(agent: Any, reward: Any, seed: int, steps: int, folder: Path) -> dict[str, Any]:
    """Trains one model inside one agent."""
    model = write_model(folder / "model", seed, TAUGHT)
    how: dict[str, Any] = {"train": "full", "learning_rate": 1e-3, "max_tokens": 8, "threads": 1, "seed": seed}
    begun = time.monotonic()
    with Drawn() as drawn:
        run = train(
            rows(seed), agent=agent, reward=reward, model=model, runs=folder / "runs", steps=steps, progress=Progress(), **how
        )  # fmt: skip
    seconds, run_folder = time.monotonic() - begun, RunFolder.open(run.path)
    means = {row["arm"]: row["mean"] for row in run_folder.evals() if row["split"] == "rows, test"}
    calls = Counter(
        (tuple(call.context), tuple(call.ids), tuple(call.logprobs))
        for stored in run_folder.episodes()
        for call in stored.episode.segments
    )
    return {
        "seed": seed,
        "before": means["untrained"],
        "after": means["trained"],
        "seconds": round(seconds, 1),
        "calls": calls.total(),
        "as drawn": (calls & drawn.samples).total(),
    }


def version_of(program: str) -> str:
    """The version of a package of Python, or of a program."""
    if program not in ("curl", "jq"):
        return version(program)
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    return re.findall(r"\d+(?:\.\d+)+", told)[0]


def others_in(path: Path | None, measured: set[str]) -> list[dict[str, Any]]:
    """The arms of a record whose agents are not measured now, each with the machine that it was measured on."""
    if path is None or not path.is_file():
        return []
    record = json.loads(path.read_text(encoding="utf-8"))
    machine_of_all = {"machine": record["machine"]} if "machine" in record else {}
    return [{**arm, **machine_of_all} for arm in record["arms"] if arm["agent"] not in measured]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    setting, rewards = machine(1), {"exact match": "exact_match", "coins": coin}
    arms = []
    for name, (agent, packages) in AGENTS.items():
        if asked.only not in name:
            continue
        for kind, reward in rewards.items():
            if kind == "coins" and agent not in WITH_COINS:
                continue
            runs = []
            for seed in range(asked.seeds):
                with tempfile.TemporaryDirectory() as path:
                    folder = Path(path)
                    runs.append(measure(agent, reward, seed, asked.steps, folder))
                print(f"{name}, {kind}: {runs[-1]}", flush=True)
            versions = {package: version_of(package) for package in packages}
            reached = sum(run["before"] < 0.3 and run["after"] >= GOAL for run in runs)
            arm = {"agent": name, "reward": kind, "versions": versions, "reached": reached, "runs": runs}
            arms.append({**arm, "machine": setting})
            save(asked.json, {
                "command": f"python -m benchmarks.training.five_agents --seeds {asked.seeds} --steps {asked.steps}",
                "goal": f"from below .3 to at least {GOAL} of new questions", "steps": asked.steps,
                "arms": [*others_in(asked.json, {arm["agent"] for arm in arms}), *arms],
            })  # fmt: skip


if __name__ == "__main__":
    main()
