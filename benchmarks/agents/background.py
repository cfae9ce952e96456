"""An adapter of the 135M model that trains beside the traffic: what it adds once it is swapped in, and whether one that was
taught wrong is taken back.

    python -m benchmarks.agents.background --json benchmarks/agents/background.json

Callers ask short questions through the gateway and reward each answer. First the reward is whether the answer is brief, as the
user wants it. Once an adapter answers, as many calls again are only measured: chance leaves one in four to what it took the place
of, so both are asked in the same minutes. Then the rewards are turned round until an adapter that learned from nothing else is
swapped in, and are true again from then on: it must be taken back. Resampled are episodes.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.memory.engine import machine
from keepworth import Client
from keepworth.models.files import ModelKind, path_of
from keepworth.models.inprocess import InProcessModel
from keepworth.serving.background import REFUSED, SERVING, TAKEN_BACK, TRAINING, BackgroundSettings
from keepworth.serving.memory_server import MemoryServer

THINGS = (
    *("a lion", "the moon", "bread", "a river", "winter", "a guitar", "Paris", "an apple", "the sun", "a train"),
    *("honey", "a dictionary", "rain", "a bicycle", "gold", "an owl", "the sea", "a candle", "tea", "a mountain"),
)
QUESTIONS = (
    *("What is {}?", "Name one thing about {}.", "What colour is {}?", "Where would I find {}?"),
    *("Is {} older than ten years?", "What goes well with {}?", "What is the opposite of {}?", "Do you like {}?"),
)
MODEL = "smollm2-135m-instruct"
TOKENS = 24
BRIEF = 8
"""Words that an answer may have to be brief."""
CALLERS = 4


def brief(text: str) -> float:
    return float(0 < len(text.split()) <= BRIEF)


class Traffic:
    """seed: of the questions and of what the model draws."""

    def __init__(self, file: Path, settings: BackgroundSettings, seed: int) -> None:
        model = InProcessModel.load(path_of(MODEL, kind=ModelKind.LANGUAGE), name=MODEL)
        self.server = MemoryServer(file, encoder=None, writer=None, seed=seed, model=model, training=settings).start()
        self.http = httpx.Client(
            base_url=self.server.url,
            headers={"Authorization": f"Bearer {self.server.token}"},
            trust_env=False,
            timeout=600,
        )
        self.memory = Client(self.server.url, self.server.token)
        self.training: Any = self.server.training
        self.draw, self.lock, self.asked = random.Random(seed), threading.Lock(), 0
        self.pool = ThreadPoolExecutor(CALLERS)

    def ask(self, judge: Callable[[str], float] | None) -> tuple[str, float, str]:
        """(who answered, whether it was brief, the episode)."""
        with self.lock:
            self.asked += 1
            number, question = self.asked, self.draw.choice(QUESTIONS).format(self.draw.choice(THINGS))
        body = {"model": MODEL, "max_tokens": TOKENS, "temperature": 1.0, "seed": number}
        body["messages"] = [{"role": "user", "content": question}]
        answer = self.http.post("/v1/chat/completions", json=body)
        answer.raise_for_status()
        said, episode = answer.json()["choices"][0]["message"]["content"], answer.headers["x-keepworth-episode"]
        if judge is not None:
            self.memory.reward(episode, judge(said))
        return answer.headers["x-keepworth-model"], brief(said), episode

    def several(self, count: int, judge: Callable[[str], float] | None) -> list[tuple[str, float, str]]:
        return list(self.pool.map(lambda _: self.ask(judge), range(count)))

    def until(
        self, state: Callable[[], bool], judge: Callable[[str], float], most: int
    ) -> tuple[bool, list[tuple[str, float, str]]]:
        asked: list[tuple[str, float, str]] = []
        while len(asked) < most:
            if state():
                return True, asked
            asked += self.several(CALLERS, judge)
            rounds = [(each.name, each.state, each.reason, each.probe, each.watch) for each in self.training.rounds]
            print(f"  {len(asked)} calls, {rounds[-2:]}", flush=True)
        return state(), asked

    def close(self) -> None:
        self.pool.shutdown()
        self.http.close()
        self.memory.close()
        self.server.close()


def interval(values: list[float], others: list[float], seed: int = 0) -> list[float]:
    """Of the difference of the means: 95 %, episodes resampled on each side."""
    draw = np.random.default_rng(seed)
    a, b = np.array(values), np.array(others)
    means = [draw.choice(a, len(a)).mean() - draw.choice(b, len(b)).mean() for _ in range(4000)]
    return [round(float(each), 4) for each in np.quantile(means, [0.025, 0.975])]


def measured(settings: BackgroundSettings, seed: int, calls: int, most: int) -> dict[str, Any]:
    begun = time.monotonic()
    found: dict[str, Any] = {"seed": seed, "settings": {"episodes": settings.episodes, "steps": settings.steps}}
    with tempfile.TemporaryDirectory() as folder:
        traffic = Traffic(Path(folder) / "agent.mem", settings, seed)
        try:
            swapped, asked = traffic.until(lambda: traffic.training.current is not None, brief, most)
            plain = [value for model, value, _ in asked if not model.startswith("round@")]
            found["until the first swap"] = {"calls": len(asked), "swapped": swapped, "brief before": np.mean(plain)}
            if swapped:
                first = traffic.training.current
                answers = traffic.several(calls, None)
                ours = [value for model, value, _ in answers if model == first.name]
                control = [value for model, value, _ in answers if model != first.name]
                found["swapped in"] = {
                    "adapter": {"n": len(ours), "brief": np.mean(ours)},
                    "control": {"n": len(control), "brief": np.mean(control)},
                    "difference": round(float(np.mean(ours) - np.mean(control)), 4),
                    "interval": interval(ours, control),
                    "probe": first.probe,
                }
                wrong: set[str] = set()

                def taught_wrong() -> list[Any]:
                    return [each for each in traffic.training.rounds if each.episodes and set(each.episodes) <= wrong]

                def turned(text: str) -> float:
                    return 1.0 - brief(text)

                count = 0
                while not any(each.since for each in taught_wrong()) and count < most:
                    more = traffic.several(CALLERS, turned)
                    wrong |= {episode for _, _, episode in more}
                    count += len(more)
                    states = [(each.name, each.state, each.reason, each.probe) for each in taught_wrong()[-2:]]
                    print(f"  turned round: {count} calls, {states}", flush=True)
                worse = [each for each in taught_wrong() if each.since]
                found["taught wrong"] = {"calls": count, "swapped in": bool(worse)}
                if worse:
                    _, asked = traffic.until(lambda: worse[0].state != SERVING, brief, most)
                    found["taken back"] = {
                        "calls": len(asked),
                        "taken back": worse[0].state == TAKEN_BACK,
                        "state": worse[0].state,
                        "watch": worse[0].watch,
                    }
            states = [each.state for each in traffic.training.rounds]
            found["rounds"] = {state: states.count(state) for state in (REFUSED, SERVING, TAKEN_BACK, TRAINING)}
        finally:
            traffic.close()
    found["seconds"] = round(time.monotonic() - begun)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--episodes", type=int, default=48, help="that one round trains on")
    parser.add_argument("--calls", type=int, default=120, help="that are only measured")
    parser.add_argument("--most", type=int, default=1200, help="calls in one part")
    options = parser.parse_args()
    settings = BackgroundSettings(episodes=options.episodes)
    rows = []
    for seed in options.seeds:
        rows.append(measured(settings, seed, options.calls, options.most))
        result = {"tokens": TOKENS, "brief": BRIEF, "callers": CALLERS, "runs": rows, "machine": machine()}
        options.json.write_text(json.dumps(result, indent=1, default=float) + "\n")
        print(json.dumps(rows[-1], default=float))


if __name__ == "__main__":
    main()
