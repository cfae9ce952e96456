"""A closed loop through the unmodified OpenAI SDK: a scripted user asks, corrects and rewards, over `keepworth serve`.

    python -m benchmarks.agents.closed_loop --seeds 5 --json benchmarks/agents/closed_loop.json

The user has two sorts of topics. Of some, memory holds two pieces of advice from before, of which one works for this user: only
rewards can tell which. Of others the user has a favourite, says so when the answer is wrong, and changes it half way through.
`keepworth serve --memory --upstream` stands between the SDK and an upstream that answers from the bytes that it is sent and from
nothing else: it takes the first line of memory that names the topic, and where there is none it guesses.

Arms: no memory; oracle (the right line is in the system prompt); memory without rewards ("off"), with rewards ("on"), and with
the rewards of other episodes ("permuted"). "bolder" and "shuffled" are the last two with settings that try out more. Those
rewards are drawn among all so far, the episode's own among them, so that the first few still say something. Other arms of as
many seeds that are in the JSON stay there.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.agents.load import TOKEN, memory_server
from benchmarks.memory.engine import machine
from benchmarks.record import arguments, save
from keepworth.base.extras import require
from keepworth.base.statistics import estimate, paired_difference
from keepworth.methods.policies.default import default
from keepworth.serving.gateway import GatewaySettings
from keepworth.serving.memory_server import MemoryServer
from tests.serving.scripted_upstream import Script
from tests.serving.scripted_upstream import upstream as scripted_upstream

ARMS = ("none", "off", "on", "permuted", "bolder", "shuffled", "oracle")
BOLDER = {"withhold": 0.1, "least": 4.0, "budget": 1.0}
"""Settings of the policy that try out more; of the arms "bolder" and "shuffled"."""
AS_SERVED = ("--encoder", "hashing", "--memory-items", "1")
USER = "ana"
MARK = "Memory of earlier conversations"
ADVISED = {
    "deploy script": ("canary", "rolling"),
    "export format": ("parquet", "avro"),
    "meeting room": ("Alto", "Brisa"),
}
LIKED = {"tea": ("jasmine", "mint", "assam", "oolong"), "pizza": ("margherita", "funghi", "marinara", "diavola")}


@dataclass(slots=True)
class Reader:
    """An upstream that answers from the bytes of a request. requests: SHA-256 of each."""

    requests: set[str] = field(default_factory=set)

    def answer(self, raw: bytes) -> str:
        self.requests.add(hashlib.sha256(raw).hexdigest())
        messages = json.loads(raw)["messages"]
        asked = str(messages[-1]["content"])
        topic = next((name for name in (*ADVISED, *LIKED) if name in asked), "")
        lines = [
            line
            for message in messages
            if MARK in str(message["content"]) or message["role"] == "system"
            for line in str(message["content"]).splitlines()
        ]
        for line in lines if topic else ():
            match = re.search(rf"\b{topic}\b.*?\b(?:take|is now|is)\s+(\w+)", line)
            if match is not None:
                return f"Take {match[1]}."
        options = {**ADVISED, **LIKED}.get(topic, ("nothing",))
        return f"Take {options[int(hashlib.sha256(raw).hexdigest(), 16) % len(options)]}."


@contextmanager
def upstream(reader: Reader) -> Iterator[str]:
    """Its address."""
    script = Script()
    script.reply = lambda body: reader.answer(script.sent[-1].content)
    with scripted_upstream(script) as server:
        yield f"{server.url}/v1"


def bolder(url: str, file: Path) -> MemoryServer:
    """The server in this process, with settings of the policy that the command does not take."""
    options: dict[str, Any] = {"encoder": "hashing", "gateway": GatewaySettings(top_k=1)}
    return MemoryServer(file, upstream=url, token=TOKEN, policy=lambda: default(**BOLDER), **options)


@dataclass(slots=True)
class Loop:
    """One user and one stream of tasks, against the gateway at `url`."""

    url: str
    arm: str
    seed: int
    episodes: int
    reader: Reader

    def played(self) -> dict[str, Any]:
        from openai import OpenAI

        from keepworth import Client

        draw = random.Random(f"closed loop {self.seed}")
        works = {topic: draw.choice(options) for topic, options in ADVISED.items()}
        likes = {topic: draw.sample(options, 2) for topic, options in LIKED.items()}
        tasks = [draw.choice([*ADVISED, *LIKED]) for _ in range(self.episodes)]
        others = random.Random(f"shuffled {self.seed}")
        off = {"X-Keepworth-Memory": "off"} if self.arm in ("none", "oracle") else {}
        success: list[float] = []
        chosen = withheld = shown = 0
        headers = {"X-Keepworth-User": USER, **off}
        with (
            OpenAI(base_url=f"{self.url}/v1", api_key=TOKEN, default_headers=headers, max_retries=5) as model,
            Client(self.url, TOKEN) as memory,
        ):
            order = [(topic, option) for topic, options in ADVISED.items() for option in options]
            draw.shuffle(order)
            for topic, option in order:
                memory.add(f"{topic}: take {option}", user_id=USER)
            for number, topic in enumerate(tasks):
                truth = works.get(topic) or likes[topic][number >= self.episodes // 2]
                known = f" The {topic} is {truth}." if self.arm == "oracle" else ""
                opening = {"role": "system", "content": f"This is task {number}.{known}"}
                asked = {"role": "user", "content": f"Which {topic}, please?"}
                begun = [opening, asked]
                raw = model.chat.completions.with_raw_response.create(model="reader", messages=begun)
                reply = raw.parse().choices[0].message.content
                right = truth in reply
                success.append(float(right))
                if off:
                    continue
                episode = raw.headers["X-Keepworth-Episode"]
                receipt = memory.receipt(episode)
                withheld += bool(receipt["recalled"]) and not receipt["new"]
                if receipt["new"]:
                    chosen += 1
                    there = not receipt["missing"] and set(receipt["new"]) <= set(receipt["injected"])
                    shown += there and receipt["sha256"] in self.reader.requests
                if self.arm in ("on", "bolder"):
                    memory.reward(episode, float(right))
                elif self.arm in ("permuted", "shuffled"):
                    memory.reward(episode, others.choice(success))
                if not right and topic in LIKED:
                    correction = {"role": "user", "content": f"No. My favourite {topic} is {truth}, please remember."}
                    model.chat.completions.create(
                        model="reader", messages=[*begun, {"role": "assistant", "content": reply}, correction]
                    )
                    self._noted(memory, f"favourite {topic} is {truth}")
        half = self.episodes // 2

        def share(topics: Collection[str], since: int = 0) -> float:
            values = [value for value, topic in zip(success[since:], tasks[since:], strict=True) if topic in topics]
            return sum(values) / max(1, len(values))

        return {
            "success": share(tasks),
            "second half": share(tasks, half),
            "advice": share(ADVISED),
            "advice, second half": share(ADVISED, half),
            "favourites": share(LIKED),
            "chosen": chosen,
            "withheld": withheld,
            "shown": shown,
            "right": "".join("1" if value else "0" for value in success),
        }

    def _noted(self, memory: Any, text: str) -> None:
        """A person takes longer to go on than memory to write; a script waits."""
        for _ in range(400):
            if any(text in item.text for item in memory.get_all(user_id=USER, limit=1000)):
                return
            time.sleep(0.01)


def main(argv: Sequence[str] | None = None) -> None:
    parser = arguments(__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--episodes", type=int, default=400)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS)
    options = parser.parse_args(argv)
    require("eval", "An interval", "scipy")  # before minutes are spent
    from importlib.metadata import version

    before = json.loads(options.json.read_text()) if options.json and options.json.exists() else {}
    same = all(before.get(name) == getattr(options, name) for name in ("seeds", "episodes"))
    rows: dict[str, list[dict[str, Any]]] = {**(before["rows"] if same else {}), **{arm: [] for arm in options.arms}}
    for seed in range(options.seeds):
        for arm in options.arms:
            reader = Reader()
            with tempfile.TemporaryDirectory() as folder, upstream(reader) as url:
                in_process, file = arm in ("bolder", "shuffled"), Path(folder) / "agent.mem"
                with bolder(url, file) if in_process else memory_server(file, url, *AS_SERVED) as server:
                    rows[arm].append(Loop(server.url, arm, seed, options.episodes, reader).played())
            print(seed, arm, rows[arm][-1], flush=True)
    result: dict[str, Any] = {
        "machine": machine(),
        "openai": version("openai"),
        "seeds": options.seeds,
        "episodes": options.episodes,
        "bolder": BOLDER,
        "rows": rows,
        "arms": {
            arm: {
                name: asdict(estimate([row[name] for row in runs]))
                for name in ("success", "second half", "advice", "advice, second half", "favourites")
            }
            for arm, runs in rows.items()
        },
        "shown of chosen": [
            sum(row["shown"] for runs in rows.values() for row in runs),
            sum(row["chosen"] for runs in rows.values() for row in runs),
        ],
        "differences": {
            f"{better} less {other}": asdict(
                paired_difference(
                    f"{better} less {other}",
                    [a["success"] - b["success"] for a, b in zip(rows[better], rows[other], strict=True)],
                )
            )
            for better, other in (
                ("off", "none"),
                ("on", "off"),
                ("on", "permuted"),
                ("permuted", "off"),
                ("bolder", "off"),
                ("bolder", "shuffled"),
                ("oracle", "bolder"),
            )
            if {better, other} <= rows.keys()
        },
    }
    save(options.json, result)


if __name__ == "__main__":
    main()
