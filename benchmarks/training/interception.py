"""What it costs to train a model inside an agent that is a program, over our own agent: seconds of a step, 16 rollouts at once.

    python -m benchmarks.training.interception [--repeats 5] [--steps 4] [--width 256] [--json FILE]

All arms play the same episodes of three turns, with the same draws, and take the same updates: our own agent in a world, a
program that calls the address with a plain client of HTTP, one with OpenAI's client, the same with connections that all rollouts
share, and one with streams. Each rollout makes its client anew, as people write it. Arms take turns in one process. A step is
timed from the end of the one before; the first of each run is left out. Seconds are of the processor and of the clock; the ratio
is to our own agent in the same repeat.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.record import arguments, save
from benchmarks.speed.setting import machine
from keepworth import train
from keepworth.records.episode import Observation, RewardTerm, StopReason, Task
from keepworth.training.programs import Endpoint
from keepworth.training.watch.progress import Progress
from keepworth.worlds.agent import Action, Caller
from keepworth.worlds.chat import Chat
from keepworth.worlds.environment import Step

TURNS, TOKENS, AGAIN = 3, 32, "Go on, and say it in other words."
ROWS = [{"prompt": f"Say something of {n} sheep."} for n in range(64)]


def write_model(folder: Path, width: int, *, positions: int = 1024) -> str:
    """A Llama of random weights: its answers are as long as they may be, in every arm."""
    import torch
    from examples.tiny_caller import make_tokenizer
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    tokenizer = make_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=width, intermediate_size=3 * width, num_hidden_layers=6,
        num_attention_heads=width // 64, num_key_value_heads=width // 64, max_position_embeddings=positions,
        eos_token_id=tokenizer.eos_token_id, tie_word_embeddings=True,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def score(answer: str, row: dict[str, Any]) -> float:
    return (sum(map(ord, answer)) % 101) / 100


class Talk:
    """The turns, as a world."""

    async def reset(self, task: Task, seed: int) -> Observation:
        self._left = TURNS
        return Observation(task.input)

    async def step(self, action: str) -> Step:
        self._left -= 1
        if self._left:
            return Step(Observation(AGAIN))
        return Step(rewards=(RewardTerm("score", score(action.strip(), {})),), stop=StopReason.COMPLETED)

    async def close(self) -> None:
        return


class Talker(Chat):
    """Our own agent; one answer that is cut does not end its episode."""

    async def act(self, observation: Observation, model: Caller) -> Action:
        return replace(await super().act(observation, model), cut=False)


def talk(prompt: str, ask: Callable[[list[Any]], str]) -> str:
    messages: list[Any] = [{"role": "user", "content": prompt}]
    for _ in range(TURNS):
        answer = ask(messages)
        messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": AGAIN}]
    return answer


def plain(row: dict[str, Any], endpoint: Endpoint) -> str:
    import httpx

    with httpx.Client(base_url=endpoint.openai, verify=False, trust_env=False, timeout=600) as client:

        def ask(messages: list[Any]) -> str:
            answer = client.post("chat/completions", json={"messages": messages}).raise_for_status().json()
            return str(answer["choices"][0]["message"]["content"])

        return talk(row["prompt"], ask)


def sdk(row: dict[str, Any]) -> str:
    import openai

    client = openai.OpenAI()
    create = client.chat.completions.create
    return talk(row["prompt"], lambda said: create(model="any", messages=said).choices[0].message.content or "")


@cache
def connections() -> Any:
    """The connections that all clients share: a client that is made without them reads this machine's certificates anew."""
    import openai

    return openai.DefaultHttpxClient()


def sharing(row: dict[str, Any]) -> str:
    import openai

    create = openai.OpenAI(http_client=connections()).chat.completions.create
    return talk(row["prompt"], lambda said: create(model="any", messages=said).choices[0].message.content or "")


def streaming(row: dict[str, Any]) -> str:
    import openai

    create = openai.OpenAI().chat.completions.create

    def ask(messages: list[Any]) -> str:
        chunks = create(model="any", messages=messages, stream=True)
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)

    return talk(row["prompt"], ask)


ARMS: dict[str, dict[str, Any]] = {
    "our own agent": {
        "environment": Talk,
        "agent": lambda task, memory: Talker(max_tokens=TOKENS),
        "turns": TURNS,
    },
    "a program, plain HTTP": {"agent": plain, "reward": score},
    "a program, OpenAI's client": {"agent": sdk, "reward": score},
    "a program, OpenAI's client with one http_client for all": {"agent": sharing, "reward": score},
    "a program, OpenAI's client, streams": {"agent": streaming, "reward": score},
}


def measure(arm: str, model: str, steps: int, folder: Path) -> tuple[float, float]:
    """Seconds of the processor and of the clock of a step: the median of all but the first."""
    ends: list[tuple[float, float]] = []

    def ended(step: int, numbers: Any) -> None:
        ends.append((time.process_time(), time.perf_counter()))

    train(
        ROWS, **ARMS[arm], model=model, runs=folder, name="run", fresh=True, track=ended, progress=Progress(),
        steps=steps, max_tokens=TOKENS, tasks_per_step=2, group_size=8, questions=2, threads=1, precision="fp32",
        evaluate_every=steps, patience=0, checkpoint_every=steps,
    )  # fmt: skip
    took = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(ends)]
    processor, clock = (statistics.median(each) for each in zip(*took, strict=True))
    return processor, clock


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    asked = parser.parse_args()
    setting = machine(1)
    seconds: dict[str, list[tuple[float, float]]] = {arm: [] for arm in ARMS}
    with tempfile.TemporaryDirectory() as folder:
        model = write_model(Path(folder) / "model", asked.width)
        for repeat in range(asked.repeats):
            for arm in ARMS:
                seconds[arm].append(measure(arm, model, asked.steps, Path(folder) / "runs"))
                print(f"{repeat + 1}/{asked.repeats}  {arm}: {seconds[arm][-1][0]:.2f} s of the processor", flush=True)
    own = seconds["our own agent"]
    rows = []
    for arm, took in seconds.items():
        ratios = [[a[kind] / b[kind] for a, b in zip(took, own, strict=True)] for kind in (0, 1)]
        processor, clock = (statistics.median(each) for each in zip(*took, strict=True))
        spread = [[min(each), statistics.median(each), max(each)] for each in ratios]
        rows.append({"arm": arm, "processor": processor, "clock": clock, "ratio": spread[0], "ratio_clock": spread[1]})
        low, middle, high = spread[0]
        print(f"{arm}: {processor:.2f} s of the processor, {middle:.2f} [{low:.2f}, {high:.2f}] x; {clock:.2f} s")
    record = {"rows": rows, "repeats": asked.repeats, "steps": asked.steps, "width": asked.width, "machine": setting}
    save(asked.json, {"command": "python -m benchmarks.training.interception", **record})


if __name__ == "__main__":
    main()
