"""What the hooks of coding assistants teach a memory to which nobody gives a reward.

    python -m benchmarks.serving.hook_signals [--runs 6] [--arms TEXT] [--json benchmarks/serving/hook_signals.json]

Two notes about one question: the one that the search puts first is right in 30 % of the cases, the other in 90 %. In each of 150
turns of a session the host sends the events of a turn, in the JSON of its own reference: the prompt, a command that ends well if
the first of the shown notes was right and else fails, and the end of the turn. Counted is in how many of the last 50 turns the
better note stands first: with one wording of the question and with twelve, with both signals, with failures or successes alone,
and without signals. `--arms` measures those with a text in their names, and keeps the others of the file. The events go through
the code of `keepworth hook` to a real server; only the process for each is left out.

Then a user who says what the outcome was, in wordings that the rules were not written from (`wordings.json` of the tests):
thanks after a right note, and after a wrong one a correction or the question again; in a fifth of the turns the opposite. The
same user also talks to a model through the gateway, where each turn is a conversation of two calls. And coins: tools fail or
succeed by chance, whatever is shown, and counted is in how many of all turns the search's own first note did not come first.

Last, how much such rewards can say at all: a test that knows how often such a user thanks after each note, and tells the two
apart with at most 5 % of mistakes at any time, if the other note is tried in a fixed share of the turns. Counted is how often
it has told by turn 100, of a thousand histories for each run.
"""

from __future__ import annotations

import contextlib
import json
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.memory.engine import machine
from benchmarks.record import arguments, save
from keepworth.base import statistics
from keepworth.serving import hook
from keepworth.serving.memory_server import MemoryServer
from keepworth.serving.upstream import Upstream

WORSE, BETTER = "build the docs with: make html docs build", "for the documentation run: mkdocs build --strict"
TURNS, LAST = 150, 50
RIGHT = {True: 0.9, False: 0.3}
"""How often the better note is right, and the other."""
WRONG = 0.2
"""How often the user says the opposite of what was so."""
MISTAKES = 0.05
"""How often a test may say that rewards depend on the notes where they do not."""
SHARES = (0.1, 0.2, 0.5)
"""Shares of the turns in which the other note is tried for it."""
WORDINGS = Path(__file__).parents[2] / "tests" / "memory" / "signals" / "wordings.json"
Events = dict[str, tuple[str, dict[str, Any]]]
HOSTS: dict[str, Events] = {
    "claude-code": {
        "prompt": ("UserPromptSubmit", {}),
        "passed": ("PostToolUse", {"tool_name": "Bash", "tool_response": {"stdout": "done", "stderr": ""}}),
        "failed": ("PostToolUseFailure", {"tool_name": "Bash", "error": "Exit code 2: no rule", "is_interrupt": False}),
        "ends": ("Stop", {}),
    },
    "codex": {
        "prompt": ("UserPromptSubmit", {}),
        "passed": ("PostToolUse", {"tool_name": "Bash", "tool_response": "Exit code: 0\ndone"}),
        "failed": ("PostToolUse", {"tool_name": "Bash", "tool_response": "Exit code: 2\nno rule"}),
        "ends": ("Stop", {}),
    },
    "gemini-cli": {
        "prompt": ("BeforeAgent", {}),
        "passed": ("AfterTool", {"tool_name": "run_shell_command", "tool_response": {"llmContent": "done"}}),
        "failed": (
            "AfterTool",
            {"tool_name": "run_shell_command", "tool_response": {"llmContent": "no rule\nExit Code: 2"}},
        ),
        "ends": ("AfterAgent", {}),
    },
    "opencode": {
        "prompt": ("chat.message", {"output": {"message": {"id": "msg_1", "role": "user"}}}),
        "passed": ("tool.execute.after", {"output": {"title": "t", "output": "done\n", "metadata": {"exit": 0}}}),
        "failed": ("tool.execute.after", {"output": {"title": "t", "output": "no rule\n", "metadata": {"exit": 2}}}),
        "ends": ("session.idle", {"properties": {"sessionID": "s"}}),
    },
}


def event_json(host: str, what: str, prompt: str = "", tool_input: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return what a host sends at an event.

    Args:
        host: A name of HOSTS.
        what: Which of its events.
        prompt: The words of the user, for a prompt.
        tool_input: The arguments of a tool that ended.
    """
    name, usual = HOSTS[host][what]
    if host != "opencode":
        words = {"prompt": prompt} if what == "prompt" else {}
        call = {"tool_input": tool_input, "tool_use_id": "u"} if tool_input else {}
        return {"hook_event_name": name, **usual, **words, **call}
    call = {"tool": "bash", "sessionID": "s", "callID": "c", "args": tool_input}
    fields = {**usual, "input": call} if tool_input else dict(usual)
    if what == "prompt":
        fields["output"] = {**usual["output"], "parts": [{"id": "prt_1", "type": "text", "text": prompt}]}
    return {"hook_event_name": name, **fields}


class Session:
    """A session of a host with a server, event by event."""

    def __init__(self, host: str, url: str, token: str, user: str, *, signals: bool) -> None:
        self.host, self.state, self.signals = host, hook.HookSession(), signals
        self.memory = hook.ServedMemory(url, token, {"user_id": user}, 60.0)

    def send(self, what: str, **fields: Any) -> str:
        """Send one event and return what is shown to the model."""
        event = hook.event_of({"session_id": "s", "cwd": "/docs", **event_json(self.host, what, **fields)})
        self.state.shown, self.state.present = [], []  # each turn is shown everything anew, so that the order is seen
        return hook.HookWork(event, self.state, self.memory, 2, None, self.signals).block()


@contextlib.contextmanager
def serve() -> Iterator[MemoryServer]:
    with tempfile.TemporaryDirectory() as folder:
        server = MemoryServer(Path(folder) / "agent.mem", encoder="hashing", seed=1).start()
        try:
            yield server
        finally:
            server.close()


def tools(session: Session, draw: random.Random, right: bool, which: str) -> str:
    """Send how the command of a turn ended, and return what the user says next, which is nothing of it."""
    if which in ("both", "passed" if right else "failed"):
        session.send("passed" if right else "failed", tool_input={"command": "make docs"})
    return ""


def words(wordings: dict[str, Any], draw: random.Random, right: bool) -> str:
    """Return what the user says of an answer, the opposite of what was so in a fifth of the turns."""
    kind = "thanks" if right != (draw.random() < WRONG) else draw.choice(["correction", "repetition"])
    message = draw.choice(wordings["en"][kind])
    return str(message).format(task="build the docs", right="mkdocs")


def run(
    host: str,
    number: int,
    questions: int,
    react: Callable[[Session, random.Random, bool], str],
    signals: bool,
    *,
    last: int = LAST,
) -> float:
    """Return the share of the last turns in which the better note stands first."""
    draw, first = random.Random(number), []
    with serve() as server:
        session = Session(host, server.url, server.token, "ana", signals=signals)
        for text in (WORSE, BETTER):
            session.memory.post("items", {"content": text, "user_id": "ana"})
        for _ in range(TURNS):
            lines = session.send("prompt", prompt=ask(draw, questions)).splitlines()
            better = len(lines) > 1 and BETTER in lines[1]
            first.append(better)
            message = react(session, draw, draw.random() < RIGHT[better])
            session.send("ends")
            if message:
                session.send("prompt", prompt=message)
                session.send("ends")
        session.memory.close()
    return float(np.mean(first[-last:]))


class GatewayUser:
    """Talks to a model through a gateway, which sees the notes in the prompt and says which came first."""

    def __init__(self) -> None:
        self.better, self.calls = False, 0
        transport = httpx.MockTransport(self.answer)
        self.upstream = Upstream("http://127.0.0.1", transport=transport, name="scripted")

    def answer(self, request: httpx.Request) -> httpx.Response:
        prompt = json.loads(request.content)["messages"][-1]["content"]
        self.better = BETTER in prompt and (WORSE not in prompt or prompt.index(BETTER) < prompt.index(WORSE))
        self.calls += 1
        message = {"role": "assistant", "content": f"Done, as number {self.calls}."}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        body = {"id": "c", "object": "chat.completion", "model": "m", "choices": [choice]}
        stream = httpx.ByteStream(json.dumps(body).encode())
        return httpx.Response(200, headers={"Content-Type": "application/json"}, stream=stream)

    def run(self, number: int, questions: int, wordings: dict[str, Any]) -> float:
        """Return the share of the last turns in which the better note stands first."""
        draw, first = random.Random(number), []
        with tempfile.TemporaryDirectory() as folder:
            server = MemoryServer(
                Path(folder) / "agent.mem", encoder="hashing", seed=number, upstream=self.upstream
            ).start()
            headers = {"Authorization": f"Bearer {server.token}", "X-Keepworth-User": "ana"}
            with httpx.Client(base_url=server.url, headers=headers, trust_env=False, timeout=60.0) as http:
                for text in (WORSE, BETTER):
                    http.post("/v1/memory/items", json={"content": text, "user_id": "ana"}).raise_for_status()
                for turn in range(TURNS):
                    http.headers["X-Keepworth-Session"] = f"conversation {turn}"
                    messages = [{"role": "user", "content": ask(draw, questions)}]
                    answer = self.call(http, messages)
                    first.append(self.better)
                    said = words(wordings, draw, draw.random() < RIGHT[self.better])
                    self.call(http, [*messages, answer, {"role": "user", "content": said}])
            server.close()
        return float(np.mean(first[-LAST:]))

    def call(self, http: httpx.Client, messages: list[dict[str, str]]) -> dict[str, str]:
        response = http.post("/v1/chat/completions", json={"model": "m", "messages": messages}).raise_for_status()
        answer: dict[str, str] = response.json()["choices"][0]["message"]
        return answer


def tell_apart(number: int, share: float) -> float:
    """Return how often a sequential test tells by turn 100 that rewards depend on which note comes first: Wald's, between the
    rates of thanks after each note and their mean.

    Args:
        number: The number of the run.
        share: The share of the turns in which the better note, which the search puts second, is tried.
    """
    draw, turns = np.random.default_rng(number), TURNS - LAST
    after = {better: right * (1.0 - WRONG) + (1.0 - right) * WRONG for better, right in RIGHT.items()}
    usual = share * after[True] + (1.0 - share) * after[False]
    tried = draw.random((1_000, turns)) < share
    chance = np.where(tried, after[True], after[False])
    thanks = draw.random(chance.shape) < chance
    ratio = np.where(thanks, chance / usual, (1.0 - chance) / (1.0 - usual))
    return float((np.log(ratio).cumsum(axis=1) > np.log(1.0 / MISTAKES)).any(axis=1).mean())


def ask(draw: random.Random, questions: int) -> str:
    """Return the question of a turn, in one of so many wordings."""
    return "how do I build the docs" + (f" of module {draw.randrange(questions)}" if questions > 1 else "")


def summarise(shares: list[float]) -> dict[str, Any]:
    ends = statistics.interval(shares, within=(0.0, 1.0))
    return {
        "mean": round(float(np.mean(shares)), 3),
        "low": round(ends.low, 3),
        "high": round(ends.high, 3),
        "runs": len(shares),
    }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--arms", default="", help="a text in the names of the arms that are measured")
    options = parser.parse_args()
    command = f"python -m benchmarks.serving.hook_signals --runs {options.runs}"
    result: dict[str, Any] = {"command": command, "machine": machine(), "arms": {}}
    if options.arms and options.json and Path(options.json).exists():
        before = json.loads(Path(options.json).read_text("utf-8"))
        revision = before["machine"]["revision"]
        result["arms"] = {name: {"revision": revision, **arm} for name, arm in before["arms"].items()}

    def note(name: str, measure: Callable[[int], float]) -> None:
        if options.arms not in name:
            return
        summary = summarise([measure(number) for number in range(options.runs)])
        result["arms"][name] = {**summary, "revision": result["machine"]["revision"]}
        print(f"{name:52} {result['arms'][name]}", flush=True)
        save(options.json, result)

    wordings = json.loads(WORDINGS.read_text("utf-8"))
    arms: list[tuple[str, str, Callable[[Session, random.Random, bool], str], bool]] = [
        *((f"{host}: tools", host, lambda s, d, r: tools(s, d, r, "both"), True) for host in HOSTS),
        *(
            (f"claude-code: {which} alone", "claude-code", lambda s, d, r, w=which: tools(s, d, r, w), True)
            for which in ("failed", "passed")
        ),
        ("claude-code: signals off", "claude-code", lambda s, d, r: tools(s, d, r, "both"), False),
        ("claude-code: words, a fifth wrong", "claude-code", lambda s, d, r: words(wordings, d, r), True),
    ]
    for name, host, react, signals in arms:
        for questions in (1, 12):
            note(f"{name}; {questions} wordings", lambda n, h=host, q=questions, r=react, s=signals: run(h, n, q, r, s))

    def toss(session: Session, draw: random.Random, right: bool) -> str:
        return tools(session, draw, draw.random() < 0.5, "both")

    for questions in (1, 12):
        talk = f"gateway: words, a fifth wrong; {questions} wordings"
        note(talk, lambda number, q=questions: GatewayUser().run(number, q, wordings))
        coins = f"claude-code: coins, share of all turns; {questions} wordings"
        note(coins, lambda number, q=questions: run("claude-code", number, q, toss, True, last=TURNS))
    for share in SHARES:
        note(f"a test that knows the rates: told, {share:.0%} tried", lambda number, f=share: tell_apart(number, f))


if __name__ == "__main__":
    main()
