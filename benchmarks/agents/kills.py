"""The server is killed under load again and again: what it acknowledged is there afterwards, once.

    python -m benchmarks.agents.kills --json benchmarks/agents/kills.json

Callers write over REST (with idempotency keys, asking again with the same key until there is an answer), begin episodes, act and
reward them, and take turns through the gateway, half of them streamed. At drawn moments the server gets SIGKILL, and another is
started on the same file and port. In the end: every acknowledged item, episode, act and reward is in the journal, exactly once;
what a person said in a turn that was answered is kept, exactly once, and what was said in one that was not, at most once; no turn
waits to be written any more; the file is sound.
"""

from __future__ import annotations

import http.client
import json
import random
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.agents.load import TOKEN, Started, free_port, instant_upstream, memory_server
from benchmarks.memory.engine import machine
from benchmarks.record import arguments, save
from keepworth.base.statistics import rate
from keepworth.memory.memory import Memory
from keepworth.memory.store import notes
from keepworth.memory.store.maintenance import check

CALLERS = 6


@dataclass(slots=True)
class Acknowledged:
    """What the server said that it did. items: texts; turns: text -> episode; said: texts of turns whatever came of them."""

    items: set[str] = field(default_factory=set)
    episodes: set[str] = field(default_factory=set)
    rewards: set[str] = field(default_factory=set)
    turns: dict[str, str] = field(default_factory=dict)
    texts: set[str] = field(default_factory=set)
    asked: int = 0
    again: int = 0


class Caller:
    """One program that uses the server, and does not know that it is killed."""

    def __init__(self, port: int, name: str, over: threading.Event) -> None:
        self.port, self.name, self.over = port, name, over
        self.seen, self.draw, self.number = Acknowledged(), random.Random(name), 0
        self._kept: http.client.HTTPConnection | None = None

    def run(self) -> None:
        while not self.over.is_set():
            self.number += 1
            self.draw.choice((self.add, self.live, self.turn, self.turn))()

    def add(self) -> None:
        text = f"{self.name} wrote line number {self.number}"
        body = {"content": text, "user_id": self.name}
        if self.until_answered("/v1/memory/items", body) is not None:
            self.seen.items.add(text)

    def live(self) -> None:
        """An episode over REST: begun, searched in, acted in, rewarded."""
        made = self.until_answered("/v1/memory/episodes", {"task": f"task {self.number}", "user_id": self.name})
        if made is None:
            return
        self.seen.episodes.add(made["id"])
        path = f"/v1/memory/episodes/{made['id']}"
        if self.once(f"{path}/search", {"query": f"line number {self.number}", "top_k": 3}) is None:
            return
        if self.until_answered(f"{path}/act", {"action": f"answer {self.number}"}) is None:
            return
        if self.until_answered(f"{path}/reward", {"value": 1.0}) is not None:
            self.seen.rewards.add(made["id"])

    def turn(self) -> None:
        """A turn through the gateway, asked once."""
        text = f"{self.name} told in turn {self.number} that it rains."
        self.seen.texts.add(text)
        body = {"model": "instant", "messages": [{"role": "user", "content": text}]}
        answer = self.once("/v1/chat/completions", body, {"X-Keepworth-User": self.name})
        if answer is None:
            return
        episode = answer["episode"]
        self.seen.turns[text] = episode
        self.seen.episodes.add(episode)
        if self.until_answered(f"/v1/memory/episodes/{episode}/reward", {"value": 0.5}) is not None:
            self.seen.rewards.add(episode)

    def until_answered(self, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """The answer, under one key however often it is asked for; {} where it was done and its answer was lost with the server;
        None where the measurement is over."""
        key = f"{self.name}-{self.number}-{path}"
        first = True
        while not self.over.is_set() or first:
            answer = self.once(path, body, {"Idempotency-Key": key[-200:]})
            if answer is not None:
                if answer.get("code") == "AnswerGone":
                    return None if path.endswith("/episodes") else {}
                return answer
            first = False
            self.seen.again += 1
        return None

    def once(self, path: str, body: dict[str, Any], headers: dict[str, str] | None = None) -> dict[str, Any] | None:
        """The answer; None where none came."""
        self.seen.asked += 1
        sent = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json", **(headers or {})}
        try:
            connection = self._kept or http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
            self._kept = connection
            connection.request("POST", path, json.dumps(body), sent)
            answer = connection.getresponse()
            reply = answer.read()
        except (OSError, http.client.HTTPException):
            if self._kept is not None:
                self._kept.close()
            self._kept = None
            time.sleep(0.02)
            return None
        if answer.status == 409:
            return dict(json.loads(reply))
        if answer.status >= 400:
            raise AssertionError(f"{path}: {answer.status} {reply!r:.300}")
        if path.startswith("/v1/chat"):
            if answer.headers["X-Keepworth-Memory"] != "on":
                raise AssertionError(f"memory was {answer.headers['X-Keepworth-Memory']}")
            return {"episode": answer.headers["X-Keepworth-Episode"]}
        return dict(json.loads(reply))


def killed(folder: Path, *, kills: int, seconds: float = 1.5, seed: int = 0) -> dict[str, Any]:
    """Counts of what was done and found. seconds: at most between a start and the next kill. Raises AssertionError for whatever
    is lost, done twice, or refused."""
    draw, file, port, over = random.Random(seed), folder / "agents.mem", free_port(), threading.Event()
    starts: list[float] = []
    with instant_upstream() as upstream, ThreadPoolExecutor(CALLERS) as pool:

        def started() -> Started:
            begun = time.monotonic()
            options = ("--encoder", "none", "--writer", "none")
            server = memory_server(file, upstream.url, *options, port=port, log=folder / "server.log")
            starts.append(time.monotonic() - begun)
            return server

        server = started()
        callers = [Caller(port, f"caller{number}", over) for number in range(CALLERS)]
        runs = [pool.submit(caller.run) for caller in callers]
        try:
            for _ in range(kills):
                time.sleep(0.1 + draw.random() * seconds)
                server.kill()
                server = started()
            time.sleep(0.5)
            over.set()
            for run in runs:
                run.result()
        finally:
            over.set()
            server.stop()
    checks = verified(file, [caller.seen for caller in callers])
    log = (folder / "server.log").read_text()
    assert "Traceback" not in log, log[-3000:]
    return {
        "kills": kills,
        # Losses come by kill, many at once or none, so acknowledged writes are no independent cases; `verified` has found none.
        "kills_with_a_loss_at_most": round(rate(0, kills).high, 6),
        "callers": CALLERS,
        "seed": seed,
        "start_seconds": round(sum(starts) / len(starts), 2),
        **checks,
    }


def verified(file: Path, seen: list[Acknowledged]) -> dict[str, Any]:
    """What is in the file of what was acknowledged. Raises AssertionError."""
    with Memory(file, encoder=None) as memory:
        problems = check(memory.store, deep=True)
        assert not problems, problems
        waiting = notes.waiting_turns(memory.store)
        assert not waiting, waiting
        written: Counter[str] = Counter()
        rewarded: Counter[str] = Counter()
        acted: Counter[str] = Counter()
        for entry in memory.store.entries():
            body = json.loads(entry.payload or "{}")
            if entry.kind == "ADD":
                written[body["text"]] += 1
            elif entry.kind == "REWARD":
                rewarded[entry.episode] += 1
            elif body.get("what") == "act":
                acted[entry.episode] += 1
        there, after = set[str](), ""
        while page := memory.episodes(limit=1000, after=after):
            there |= set(page)
            after = page[-1]
    items = {text for one in seen for text in one.items}
    turns = {text: episode for one in seen for text, episode in one.turns.items()}
    episodes = {id for one in seen for id in one.episodes}
    rewards = {id for one in seen for id in one.rewards}
    acknowledged = {text for one in seen for text in one.texts}
    lost = {
        "items": sorted(items - set(written)),
        "turns": sorted(set(turns) - set(written)),
        "episodes": sorted(episodes - there),
        "rewards": sorted(rewards - set(rewarded)),
    }
    twice = {
        "writes": [text for text, count in written.items() if count > 1],
        "rewards": [id for id, count in rewarded.items() if count > 1],
        "acts": [id for id, count in acted.items() if count > 1],
    }
    assert not any(lost.values()), {name: ids[:5] for name, ids in lost.items() if ids}
    assert not any(twice.values()), {name: ids[:5] for name, ids in twice.items() if ids}
    return {
        "acknowledged": {name: len(of) for name, of in zip(lost, (items, turns, episodes, rewards), strict=True)},
        "lost": 0,
        "done_twice": 0,
        "turns_without_an_answer": len(acknowledged) - len(turns),
        "of_these_kept": len((acknowledged - set(turns)) & set(written)),
        "calls": sum(one.asked for one in seen),
        "asked_again": sum(one.again for one in seen),
        "journal_entries": sum(written.values()) + sum(rewarded.values()) + sum(acted.values()),
    }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = {**killed(Path(folder), kills=options.kills, seed=options.seed), "machine": machine()}
    print(json.dumps(result, indent=1))
    save(options.json, result)


if __name__ == "__main__":
    main()
