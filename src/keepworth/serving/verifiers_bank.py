"""The bounded bank as a task set of `verifiers` (https://github.com/PrimeIntellect-ai/verifiers, its version 1).

A module of verifiers is found by its name, so a file `bank.py` with two lines makes it the task set `bank`:

    from keepworth.serving.verifiers_bank import BankEnv, BankHarness, BankTaskset
    __all__ = ["BankEnv", "BankHarness", "BankTaskset"]

An episode is one trace, in which every turn is a branch of its own: the writer sees its bank and the new fact, and nothing of the
turns before. Without a reader the policy answers too, from what is left in the bank.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Sequence
from pkgutil import resolve_name
from typing import Any, Literal

from keepworth.episodes.needs import needs_verifiers

import httpx
import verifiers.v1 as vf
from verifiers.v1.dialects.chat import message_to_wire

from keepworth.environments.bounded_bank import BankKeeping, Reading, worded
from keepworth.episodes.episode import Task
from keepworth.tasks.fact_streams import FactStream, longmemeval_streams


class BankConfig(vf.TasksetConfig):  # type: ignore[misc]
    """length: facts in a stream, of which the bank holds `budget`. streams: of each question. reader: `module:function` of who
    answers in the policy's place; see `BankKeeping`."""

    length: int = 16
    budget: int = 4
    unit: Literal["items", "tokens"] = "items"
    split: Literal["train", "dev", "test"] = "train"
    streams: int = 1
    seed: int = 0
    reader: str = ""
    reward: str = "token_f1"


class BankData(vf.TaskData):  # type: ignore[misc]
    """evidence: numbers of the facts that decide the question, for a metric."""

    facts: list[str]
    question: str
    answers: list[str]
    evidence: list[int]


class BankTask(vf.Task[BankData]):  # type: ignore[misc]
    pass


class BankTaskset(vf.Taskset[BankTask, BankConfig]):  # type: ignore[misc]
    """Override `streams` for facts of your own, `reader` for one that is not to be found by its name."""

    def streams(self) -> Sequence[FactStream]:
        drawn = longmemeval_streams(self.config.length, streams=self.config.streams, seed=self.config.seed)
        return [stream for stream in drawn if stream.task.tags["split"] == self.config.split]

    def reader(self) -> Reading | None:
        if not self.config.reader:
            return None
        found: Reading = resolve_name(self.config.reader)
        return found

    def load(self) -> Iterable[BankTask]:
        for stream in self.streams():
            data = BankData(
                name=stream.key,
                facts=[fact.text for fact in stream.facts],
                question=stream.task.input,
                answers=list(stream.task.answers),
                evidence=[number for number, decides in enumerate(stream.evidence) if decides],
            )
            yield BankTask(data, self.config.task)

    def world(self, data: BankData) -> BankKeeping:
        config, marked = self.config, set(data.evidence)

        def evidence(task: Task, stays: Sequence[int]) -> float:
            return len(marked & set(stays)) / len(marked)

        return BankKeeping(
            lambda task: data.facts,
            config.budget,
            unit=config.unit,
            reader=self.reader(),
            reward=config.reward,
            evidence=evidence if marked else None,
        )


class BankEnvConfig(vf.EnvConfig):  # type: ignore[misc]
    writer: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())


class BankEnv(vf.Env[BankEnvConfig]):  # type: ignore[misc]
    """A writer that is stopped before its answer has no reward term, which counts as 0. A reader that fails fails the episode."""

    async def run(self, task: BankTask, agents: vf.Agents) -> None:
        data, config = task.data, self.taskset.config
        world = self.taskset.world(data)
        seen = world.begin(Task(data.name, "fact streams", data.question, tuple(data.answers), config.reward))
        terms: Iterable[Any] = ()
        async with agents.writer.interaction(task) as interaction:
            while True:
                segment = await interaction.turn(worded(seen, config.budget, config.unit))
                if segment.terminated:
                    break
                step = await world.step(segment.last_reply)
                if step.stop is not None:
                    terms = step.rewards
                    break
                seen = step.observation
        trace = interaction.trace
        trace.record_reward(config.reward, 0.0)
        for term in terms:
            if term.weight:
                trace.record_reward(term.name, term.value, term.weight)
            else:
                trace.record_metric(term.name, term.value)
        trace.record_metrics({"invalid": float(world.bank.invalid), "refused": float(world.bank.refused)})


class BankHarness(vf.Harness[vf.HarnessConfig]):  # type: ignore[misc]
    """Asks the model for one message at a time, each in a conversation of its own; in this process, so nothing is installed."""

    EXECUTES_CODE = False
    NEEDS_CONTAINER = False
    APPENDS_SYSTEM_PROMPT = True

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> vf.ProgramResult:
        raise vf.HarnessError("the bounded bank opens the conversation itself: its tasks have no prompt")

    async def resume(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
        messages: vf.Messages,
        tool_interception_url: str | None = None,
    ) -> vf.ProgramResult:
        """`messages` alone: what was said before is not said again."""
        system, _ = self.resolve_prompt(data)
        sent = [{"role": "system", "content": system}] if system else []
        body = {"model": ctx.model, "messages": [*sent, *map(message_to_wire, messages)]}
        async with httpx.AsyncClient(timeout=None, verify=ssl.create_default_context()) as http:
            reply = await http.post(
                f"{endpoint}/chat/completions", json=body, headers={"Authorization": f"Bearer {secret}"}
            )
        return vf.ProgramResult(exit_code=int(reply.is_error), stdout="", stderr=reply.text if reply.is_error else "")
