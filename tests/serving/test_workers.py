"""Several processes that serve one memory at one address: what a caller did at one, it goes on with at another."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from keepworth import Client
from keepworth.memory.headline import MARK
from keepworth.serving.access import Tokens, new_access, tokens_of
from keepworth.serving.calls import NotServed
from keepworth.serving.open_memories import SHARE, OpenMemories
from tests.serving.gate import EPISODE, says, until, user
from tests.serving.memory_process import TOKEN, MemoryProcess
from tests.serving.scripted_upstream import Script, upstream

CHAT = "/v1/chat/completions"


class Served(MemoryProcess):
    """A memory that two processes serve. Each of its two callers has one connection, and so a process of its own."""

    def start(self) -> Served:
        super().start()
        assert self.process is not None
        assert self.process.stdout is not None
        self.workers = [int(number) for number in re.findall(r"\d{2,}", next(self.process.stdout))]
        self.callers = [self.caller(), self.caller()]
        for caller in self.callers:
            assert caller.get("/health").status_code == 200
        return self

    def caller(self, token: str = TOKEN) -> httpx.Client:
        headers, limits = {"Authorization": f"Bearer {token}"}, httpx.Limits(max_connections=1)
        return httpx.Client(base_url=self.url, headers=headers, limits=limits, trust_env=False, timeout=300)

    def line(self) -> str:
        """The next line on standard error."""
        assert self.process is not None
        assert self.process.stderr is not None
        return next(self.process.stderr)


@pytest.fixture(scope="module")
def script() -> Script:
    return Script()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, script: Script) -> Iterator[Served]:
    file = tmp_path_factory.mktemp("served") / "agent.mem"
    with upstream(script) as answering:
        options = ("--workers", "2", "--upstream", answering.url, "--upstream-key", "none")
        with Served(file, *options) as process:
            yield process


def posted(caller: httpx.Client, path: str, body: dict[str, Any], **headers: str) -> Any:
    answer = caller.post(f"/v1/memory{path}", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def chat(caller: httpx.Client, person: str, *messages: dict[str, Any]) -> httpx.Response:
    body = {"model": "scripted", "messages": list(messages)}
    answer = caller.post(CHAT, json=body, headers={"X-Keepworth-User": person})
    assert answer.status_code == 200, answer.text
    return answer


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_search_is_rewarded_at_once_in_another_process(served: Served) -> None:
    first, second = served.callers
    posted(first, "/items", {"content": "Oslo is cold", "user_id": "reward"})
    for _ in range(5):
        decision = posted(first, "/search", {"query": "is Oslo cold", "user_id": "reward"})["decision"]
        assert posted(second, "/rewards", {"target": decision, "value": 1.0})


def test_an_episode_goes_on_in_whichever_process(served: Served) -> None:
    first, second = served.callers
    posted(first, "/items", {"content": "Oslo is cold", "user_id": "ana"})
    episode = posted(first, "/episodes", {"task": "pack", "user_id": "ana", "explore": False})["id"]
    decisions = []
    for step, (searches, acts) in enumerate(((first, second), (second, first), (first, first), (second, second))):
        decisions += [posted(searches, f"/episodes/{episode}/search", {"query": "weather"})["decision"]]
        posted(acts, f"/episodes/{episode}/act", {"action": f"act {step}"})
        posted(searches, f"/episodes/{episode}/step_reward", {"value": 0.5})
    posted(second, f"/episodes/{episode}/reward", {"value": 1.0})
    record = first.get(f"/v1/memory/episodes/{episode}").json()
    assert [made["id"] for made in record["decisions"]] == decisions
    assert [made["step"] for made in record["decisions"]] == [0, 1, 2, 3]
    assert [spoken["done"] for spoken in record["exchanges"]] == [f"act {step}" for step in range(4)]


def test_of_two_processes_that_get_one_request_at_once_one_carries_it_out(served: Served) -> None:
    for number in range(10):
        answers: list[httpx.Response] = []

        def ask(caller: httpx.Client, key: str = f"k{number}", answers: list[httpx.Response] = answers) -> None:
            body = {"content": "twice", "repeat": True, "user_id": key}
            answers.append(caller.post("/v1/memory/items", json=body, headers={"Idempotency-Key": key}))

        threads = [threading.Thread(target=ask, args=(caller,)) for caller in served.callers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {answer.status_code for answer in answers} <= {200, 409}
        assert any(answer.status_code == 200 for answer in answers)
        listed = served.callers[0].get("/v1/memory/items", params={"user_id": f"k{number}"}).json()["items"]
        assert len(listed) == 1, [answer.text for answer in answers]


def test_statement_is_known_to_the_next_call_in_another_process(served: Served, script: Script) -> None:
    first, second = served.callers
    for number in range(12):
        person = f"person{number}"
        stated, asked = user("I am allergic to peanuts."), user("What may I not eat, peanuts?")
        before = chat(first, person, stated)
        turn = chat(second, person, stated, says("Noted."), asked)
        assert "- I am allergic to peanuts." in script.sent[-1].messages[-1]["content"], number
        receipt = first.get(f"/v1/memory/episodes/{turn.headers[EPISODE]}/receipt").json()
        assert len(receipt["injected"]) == 1
        third = chat(first, person, stated, says("Noted."), asked, says("Noted."), user("Thanks, and a nut cake?"))
        assert script.sent[-1].messages[2]["content"].startswith(MARK), "the block of the other process stays"
        episodes = {answer.headers[EPISODE] for answer in (before, turn, third)}
        assert len(episodes) == 3
        with Client(served.url, TOKEN) as memory:
            until(lambda: memory.episode_record(turn.headers[EPISODE]).exchanges)  # noqa: B023
            assert memory.reward(turn.headers[EPISODE], 1.0).applied


def test_a_token_counts_in_every_process_while_it_is_on_file(served: Served) -> None:
    tokens = Tokens(tokens_of(served.file))
    token = tokens.add(access := new_access(user_id="ana", roles=("read",)))
    callers = [served.caller(token), served.caller(token)]
    assert [caller.get("/v1/memory/access").status_code for caller in callers] == [200, 200]
    tokens.remove(access.id)
    assert [caller.get("/v1/memory/access").status_code for caller in callers] == [401, 401]


def test_both_processes_open_a_new_tenant_at_once(served: Served) -> None:
    tokens = Tokens(tokens_of(served.file))
    for number in range(4):
        token = tokens.add(new_access(tenant=f"tenant {number}"))
        callers, statuses = [served.caller(token), served.caller(token)], list[int]()

        def add(caller: httpx.Client, statuses: list[int] = statuses) -> None:
            statuses.append(caller.post("/v1/memory/items", json={"content": f"fact {id(caller)}"}).status_code)

        threads = [threading.Thread(target=add, args=(caller,)) for caller in callers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert statuses == [200, 200]
        assert [len(caller.get("/v1/memory/items").json()["items"]) for caller in callers] == [2, 2]


def test_erasure_and_rollback_reach_other_processes(served: Served, script: Script) -> None:
    first, second = served.callers
    asked = user("What may I not eat, peanuts?")
    for person, undo in (("erased", "/erase"), ("taken back", "/rollbacks")):
        mark = first.post("/v1/memory/snapshots").json()
        posted(first, "/items", {"content": "I am allergic to peanuts.", "user_id": person, "source": "import"})
        for _ in range(2):
            assert posted(second, "/search", {"query": "peanuts", "user_id": person})["hits"]
        chat(second, person, asked)
        assert "- I am allergic" in script.sent[-1].messages[-1]["content"]
        posted(first, undo, {"user_id": person} if undo == "/erase" else {"since": mark["snapshot"]})
        assert not posted(second, "/search", {"query": "peanuts", "user_id": person})["hits"]
        chat(second, person, user("Once more: what may I not eat, peanuts?"))
        assert "allergic" not in str(script.sent[-1].messages)


def test_readers_add_no_more_to_the_log_because_there_are_more_processes(tmp_path: Path) -> None:
    reader = new_access(user_id="ana", roles=("read",))
    added = []
    for workers in (1, 2):
        memories = OpenMemories(tmp_path / f"{workers}.mem", {"encoder": None}, workers=workers)
        handle, size = memories.of(reader), 0
        try:
            while True:
                handle.require_room(reader, SHARE // 8)
                size += SHARE // 8
        except NotServed:
            added.append(size)
        memories.close()
    assert added == [SHARE, SHARE // 2]


def test_a_worker_that_ends_is_replaced_and_all_end_with_the_first(tmp_path: Path) -> None:
    with Served(tmp_path / "agent.mem", "--workers", "2") as served:
        posted(served.callers[0], "/items", {"content": "Oslo is cold", "user_id": "ana"})
        os.kill(served.workers[0], signal.SIGKILL)
        assert "Worker 1 ended (signal 9); another one takes its place." in served.line()
        for _ in range(4):  # at both
            with served.caller() as caller:
                assert len(caller.get("/v1/memory/items", params={"user_id": "ana"}).json()["items"]) == 1
        assert served.process is not None
        served.process.send_signal(signal.SIGINT)
        assert served.process.wait(60) == 130
        assert not any(map(alive, served.workers))


def test_workers_end_where_the_first_process_is_killed(tmp_path: Path) -> None:
    with Served(tmp_path / "agent.mem", "--workers", "2") as served:
        assert served.process is not None
        served.process.kill()
        served.process.wait()
        until(lambda: not any(map(alive, served.workers)))


def test_command_ends_if_no_worker_can_serve(tmp_path: Path) -> None:
    """As where a package is there for the first process alone."""
    folder = tmp_path / "broken"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import sys\nif '--multiprocessing-fork' in sys.orig_argv:\n    raise SystemExit('no worker here')\n"
    )
    process = MemoryProcess(tmp_path / "agent.mem", "--workers", "2")
    process.environment["PYTHONPATH"] = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    try:
        with pytest.raises(StopIteration):
            process.start()
    finally:
        code, errors = process.stop()
    assert code == 2
    assert "3 workers in a row ended before they served" in " ".join(errors.split())
