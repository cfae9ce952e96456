"""Agents that nobody here wrote the loop of: their calls are answered by the model in training, and recorded as drawn."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from keepworth.records import Episode, StopReason
from keepworth.training.interception import LONGEST_CALL
from keepworth.training.programs import Endpoint
from tests.learning.intercepted import Scripted, rollouts

openai = pytest.importorskip("openai")
pytest.importorskip("anthropic")

from tests.learning.agents_of_others import chats, claude, claude_runs, responds, streams  # noqa: E402

ROWS = tuple({"prompt": f"What is {a} + 4?", "answer": str(a + 4)} for a in range(3, 6))


def adds(prompt: str) -> str:
    """Calls the tool, and then says what it said."""
    if "tool: " in prompt:
        return prompt.rpartition("tool: ")[2].partition("<|end|>")[0]
    number = prompt.rpartition("What is ")[2][0]
    return f'Let me see. <tool_call>{{"name": "add", "arguments": {{"a": {number}, "b": 4}}}}</tool_call>'


COMMAND = """
import json, sys
from tests.learning.agents_of_others import chats
print(chats(json.load(sys.stdin)))
"""


@pytest.fixture
def model(tmp_path: Path) -> Scripted:
    return Scripted(tmp_path / "model", adds)


def drawn_in(episodes: Sequence[Episode]) -> list[tuple[Any, ...]]:
    return sorted((call.context, call.ids, call.logprobs) for episode in episodes for call in episode.segments)


@pytest.mark.parametrize(
    "agent",
    [chats, streams, responds, claude, claude_runs, "command"],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_agents_of_every_format_are_recorded_as_they_were_drawn(
    model: Scripted, agent: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if agent == "command":
        (tmp_path / "agent.py").write_text(COMMAND, encoding="utf-8")
        root = str(Path(__file__).parents[2])
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join((root, f"{root}/src")))
        agent = f"{sys.executable} {tmp_path / 'agent.py'}"
    episodes = rollouts(model, agent, ROWS, seconds=60.0)
    assert [(episode.answer, episode.reward, episode.stop) for episode in episodes] == [
        (row["answer"], 1.0, StopReason.COMPLETED) for row in ROWS
    ]
    assert drawn_in(episodes) == sorted(model.drawn)
    for episode in episodes:
        first, second = episode.segments
        assert second.context[: len(first.context) + len(first.ids)] == first.context + first.ids
        text = model.tokenizer.decode(list(second.context + second.ids))
        assert text.count("<tool_call>") == text.count("tool: ") == 1
        assert text.startswith("tools: ")
        assert "system: Use the tool.<|end|>" in text


def test_a_caller_that_hangs_up_before_its_answer_is_no_failure_of_the_server(
    model: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    model.script = lambda prompt: "7"

    def agent(row: dict[str, Any], endpoint: Endpoint) -> str:
        if row["prompt"] == "Wait.":  # answers are drawn once both have called
            time.sleep(1.0)
        else:
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(f"{endpoint.openai}{CHAT}", json={"messages": HELLO}, trust_env=False, timeout=0.3)
        return text_of(once(endpoint))

    rows = ({"prompt": "Wait.", "answer": "7"}, {"prompt": "Hang up.", "answer": "7"})
    episodes = rollouts(model, agent, rows)
    assert [episode.reward for episode in episodes] == [1.0, 1.0]
    assert "hung up before its answer" in " | ".join(episodes[1].errors)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("jq")), reason="needs curl and jq")
def test_a_script_of_the_shell_with_curl_runs_its_loop_unchanged(model: Scripted) -> None:
    def price(prompt: str) -> str:
        told = prompt.rpartition("tool: ")[2].partition("<|end|>")[0] if "tool: " in prompt else ""
        return told or '<tool_call>{"name": "price", "arguments": {"item": "pear"}}</tool_call>'

    model.script = price
    script = Path(__file__).parents[2] / "benchmarks" / "training" / "ask.sh"
    rows = ({"prompt": "What does a pear cost?", "answer": "7", "prices": {"pear": "7"}},)
    (episode,) = rollouts(model, f"sh {script}", rows, seconds=60.0)
    assert (episode.answer, episode.reward, len(episode.segments)) == ("7", 1.0, 2)
    assert drawn_in([episode]) == sorted(model.drawn)


# What else a provider does.

HELLO = [{"role": "user", "content": "Hello."}]
CHAT = "/chat/completions"


def once(endpoint: Endpoint, messages: Any = HELLO, path: str = CHAT, **more: Any) -> httpx.Response:
    return httpx.post(f"{endpoint.openai}{path}", json={"model": "tiny", "messages": messages, **more}, trust_env=False)


def text_of(answer: httpx.Response) -> str:
    return str(answer.json()["choices"][0]["message"]["content"])


def test_n_stops_and_limits_of_tokens_work_as_at_a_provider(model: Scripted) -> None:
    model.script = lambda prompt: "one. two. three."
    seen: dict[str, Any] = {}

    def agent(row: dict[str, Any], endpoint: Endpoint) -> str:
        seen["several"] = once(endpoint, n=3, logprobs=True).json()
        seen["stopped"] = once(endpoint, stop=["two"], seed=3, temperature=0.2).json()
        seen["cut"] = once(endpoint, max_completion_tokens=4).json()
        seen["models"] = httpx.get(f"{endpoint.openai}/models", trust_env=False).json()
        seen["model"] = httpx.get(f"{endpoint.openai}/models/gpt-5", trust_env=False).json()
        return "7"

    (episode,) = rollouts(model, agent)
    choices = seen["several"]["choices"]
    assert [(choice["index"], choice["finish_reason"]) for choice in choices] == [(0, "stop"), (1, "stop"), (2, "stop")]
    assert [token["logprob"] for token in choices[0]["logprobs"]["content"]] == list(episode.segments[0].logprobs)
    assert seen["several"]["usage"]["completion_tokens"] == sum(len(call.ids) for call in episode.segments[:3])
    assert seen["stopped"]["choices"][0]["message"]["content"] == "one. "
    cut = seen["cut"]["choices"][0]
    assert (cut["message"]["content"], cut["finish_reason"]) == ("one.", "length")
    assert [seen["models"]["data"][0]["id"], seen["model"]["id"]] == ["tiny", "tiny"]
    assert len(episode.segments) == 5
    assert episode.errors == ()


def test_a_rewritten_conversation_is_a_prompt_of_its_own_and_branches_keep_their_ids(model: Scripted) -> None:
    model.script = lambda prompt: f"answer {prompt.count('user: ')}"
    asked = {"role": "user", "content": "And then?"}

    def agent(row: dict[str, Any], endpoint: Endpoint) -> str:
        said = [*HELLO, {"role": "assistant", "content": text_of(once(endpoint))}]
        for branch in ("left", "right"):  # two sub-agents go on from the same place
            once(endpoint, [*said, {**asked, "content": branch}])
        once(endpoint, [said[0], {"role": "assistant", "content": " answer 1\n"}, asked])  # stripped or not
        once(endpoint, [{"role": "user", "content": "Summary: hello."}, asked])
        once(endpoint, [*HELLO, {"role": "assistant", "content": "Something else."}, asked])
        return "7"

    (episode,) = rollouts(model, agent)
    first, left, right, stripped, summary, other = episode.segments
    whole = first.context + first.ids
    goes_on = [call.context[: len(whole)] == whole for call in (left, right, stripped, summary, other)]
    assert goes_on == [True, True, True, False, False]
    assert drawn_in([episode]) == sorted(model.drawn)


def test_unsupported_calls_are_refused_and_the_rollout_continues(model: Scripted) -> None:
    seen: list[tuple[int, str]] = []

    def agent(row: dict[str, Any], endpoint: Endpoint) -> str:
        with httpx.Client(trust_env=False, timeout=60) as client:
            for path, content in (
                ("/v1/embeddings", b"{}"),
                ("/v1/chat/completions", b"{"),
                (
                    "/v1/chat/completions",
                    json.dumps({"messages": [{"role": "user", "content": "a" * LONGEST_CALL}]}).encode(),
                ),
                ("/v1/chat/completions", json.dumps({"messages": [{"role": "user", "content": "a" * 5000}]}).encode()),
                (
                    "/v1/chat/completions",
                    json.dumps({"messages": HELLO, "response_format": {"type": "json_object"}}).encode(),
                ),
                ("/v1/messages", json.dumps({"messages": HELLO, "min_p": 0.1}).encode()),
            ):
                answer = client.post(endpoint.url + path, content=content, headers={"content-type": "application/json"})
                seen.append((answer.status_code, answer.json()["error"]["message"]))
        once(endpoint, model="gpt-5")
        return "7"

    (episode,) = rollouts(model, agent)
    assert [status for status, _ in seen] == [404, 400, 413, 400, 400, 400]
    assert (episode.reward, episode.stop, len(episode.segments)) == (1.0, StopReason.COMPLETED, 1)
    named = " | ".join(episode.errors)
    for words in (
        "no route POST /v1/embeddings",
        "not JSON",
        "bytes",
        "reads 2048",
        "draws under no grammar",
        "min_p",
        "'gpt-5'",
    ):
        assert words in named
    assert len(episode.errors) == 7


# Rollouts that fail are left out by rule, and the others go on.


def answers(row: dict[str, Any], endpoint: Endpoint) -> str:
    return text_of(once(endpoint))


def hangs(row: dict[str, Any], endpoint: Endpoint) -> str:
    once(endpoint)
    time.sleep(30)
    return ""


async def hangs_in_a_loop(row: dict[str, Any], endpoint: Endpoint) -> str:
    await asyncio.Event().wait()
    return ""


def crashes(row: dict[str, Any], endpoint: Endpoint) -> str:
    once(endpoint)
    raise SystemExit("no more")


def never_calls(row: dict[str, Any]) -> str:
    return "7"


def swallows(row: dict[str, Any], endpoint: Endpoint) -> str:
    once(endpoint, path="/nowhere")
    return "7"


def calls_without_end(row: dict[str, Any], endpoint: Endpoint) -> str:
    for _ in range(1000):
        once(endpoint).raise_for_status()
    return ""


def overflows(row: dict[str, Any], endpoint: Endpoint) -> str:
    once(endpoint)
    once(endpoint, [{"role": "user", "content": "a" * 5000}]).raise_for_status()
    return ""


@pytest.mark.parametrize(
    ("agent", "stop", "says"),
    [
        (hangs, StopReason.TIMEOUT, "took more than 0.5 s of its own"),
        (hangs_in_a_loop, StopReason.TIMEOUT, "took more than 0.5 s"),
        ("sleep 60 & sleep 60", StopReason.TIMEOUT, "took more than 0.5 s"),
        (crashes, StopReason.ENVIRONMENT_ERROR, "SystemExit: no more"),
        ("echo broken >&2; exit 3", StopReason.ENVIRONMENT_ERROR, "exit code 3: broken"),
        ("yes | head -c 3000000", StopReason.ENVIRONMENT_ERROR, "printed more than"),
        (never_calls, StopReason.ENVIRONMENT_ERROR, "without an answer of the model"),
        (swallows, StopReason.ENVIRONMENT_ERROR, "without an answer of the model"),
        (calls_without_end, StopReason.MAX_TURNS, "has had its 8 answers"),
        (overflows, StopReason.CONTEXT_OVERFLOW, "reads 2048"),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_a_rollout_that_fails_ends_by_its_rule_and_says_why(
    model: Scripted, agent: Any, stop: StopReason, says: str
) -> None:
    model.script = lambda prompt: "7"
    begun = time.monotonic()
    (episode,) = rollouts(model, agent, seconds=0.5 if stop is StopReason.TIMEOUT else 25.0)
    assert time.monotonic() - begun < 20
    assert (episode.stop, episode.reward) == (stop, 0.0)
    assert says in " | ".join(episode.errors)


def test_one_that_hangs_takes_no_time_of_those_that_wait_for_it(model: Scripted) -> None:
    """Measured rollouts are drawn together, so that the others wait, and a wait is not their own time."""
    model.script = lambda prompt: "7"

    def agent(row: dict[str, Any], endpoint: Endpoint) -> str:
        return hangs(row, endpoint) if "hang" in row["prompt"] else answers(row, endpoint) + answers(row, endpoint)[:0]

    rows = [{"prompt": prompt, "answer": "7"} for prompt in ("hang", "a", "b")]
    episodes = rollouts(model, agent, rows, seconds=2.0)
    assert sorted(episode.stop.value for episode in episodes) == ["completed", "completed", "timeout"]


def test_calls_after_the_end_are_refused_and_not_recorded(model: Scripted) -> None:
    model.script = lambda prompt: "7"
    late: list[Endpoint] = []

    def agent(row: dict[str, Any], endpoint: Endpoint) -> str:
        late.append(endpoint)
        return answers(row, endpoint)

    (episode,) = rollouts(model, agent)
    refused = once(late[0])
    assert (refused.status_code, "has ended" in refused.text) == (410, True)
    with pytest.raises(openai.APIStatusError, match="has ended"):
        openai.OpenAI(base_url=late[0].openai, api_key="any").responses.create(model="tiny", input="Hello.")
    assert len(episode.segments) == len(model.drawn) == 1


def test_endpoint_is_on_loopback_with_a_secret_path(model: Scripted) -> None:
    model.script = lambda prompt: "7"
    seen: list[int] = []

    def agent(row: dict[str, Any], endpoint: Endpoint) -> str:
        assert endpoint.url.startswith("http://127.0.0.1:")
        host = endpoint.url.split("/")[2]
        secret, token = endpoint.url.split("/")[3:]
        assert min(len(secret), len(token)) >= 20
        for path in (f"x/{token}", f"{secret}/x", f"{secret}", ""):
            answer = httpx.post(f"http://{host}/{path}/v1/chat/completions", json={"messages": HELLO}, trust_env=False)
            seen.append(answer.status_code)
        foreign = {"host": "evil.example"}
        url = f"{endpoint.openai}{CHAT}"
        seen.append(httpx.post(url, json={"messages": HELLO}, headers=foreign, trust_env=False).status_code)
        return answers(row, endpoint)

    (episode,) = rollouts(model, agent)
    assert seen == [404, 410, 410, 404, 403]
    assert len(episode.segments) == 1


def test_cancelled_call_is_not_recorded(model: Scripted) -> None:
    """The model is waited for as long as another rollout thinks; who hangs up meanwhile has not called."""
    model.script = lambda prompt: "7"
    left = threading.Event()

    def agent(row: dict[str, Any], endpoint: Endpoint) -> str:
        if row["prompt"] == "thinks":
            left.wait(10)
            return answers(row, endpoint)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{endpoint.openai}{CHAT}", json={"messages": HELLO}, timeout=0.3, trust_env=False)
        left.set()
        return answers(row, endpoint)

    episodes = rollouts(model, agent, [{"prompt": "thinks"}, {"prompt": "leaves"}], reward=lambda answer, row: 1.0)
    assert [len(episode.segments) for episode in episodes] == [1, 1]
    assert "hung up" in " | ".join(episodes[1].errors)


def test_concurrent_rollouts_have_separate_endpoints(model: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "https://provider.example/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    model.script = lambda prompt: prompt.rpartition("user: ")[2].partition("<|end|>")[0]
    seen: dict[str, Any] = {}

    def agent(row: dict[str, Any]) -> str:
        client = openai.OpenAI()
        seen[row["prompt"]] = (os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"], "HOME" in os.environ)
        assert dict(os.environ)["OPENAI_BASE_URL"] == os.getenv("OPENAI_BASE_URL") == str(client.base_url).rstrip("/")
        time.sleep(0.05)
        ask = client.chat.completions.create
        answers = [ask(model="m", messages=[{"role": "user", "content": row["prompt"]}]) for _ in range(3)]
        (answer,) = {answer.choices[0].message.content for answer in answers}
        return str(answer)

    rows = [{"prompt": f"number {n}", "answer": f"number {n}"} for n in range(16)]
    episodes = rollouts(model, agent, rows)
    assert [episode.reward for episode in episodes] == [1.0] * 16
    assert len({url for url, *_ in seen.values()}) == 16
    assert all(key != "secret" and home for _, key, home in seen.values())
    assert os.environ["OPENAI_BASE_URL"] == "https://provider.example/v1"


def test_of_64_rollouts_at_once_no_call_is_lost(model: Scripted) -> None:
    model.script = lambda prompt: prompt.rpartition("user: ")[2].partition("<|end|>")[0]

    def agent(row: dict[str, Any], endpoint: Endpoint) -> str:
        messages = [{"role": "user", "content": row["prompt"]}]
        with httpx.Client(base_url=endpoint.openai, verify=False, trust_env=False, timeout=120) as client:
            for _ in range(5):
                (choice,) = (
                    client.post("chat/completions", json={"messages": messages}).raise_for_status().json()["choices"]
                )
                messages += [choice["message"], {"role": "user", "content": row["prompt"]}]
        return str(choice["message"]["content"])

    rows = [{"prompt": f"number {n}", "answer": f"number {n}"} for n in range(64)]
    episodes = rollouts(model, agent, rows, seconds=120.0)
    assert [(episode.reward, len(episode.segments), episode.errors) for episode in episodes] == [(1.0, 5, ())] * 64
    assert drawn_in(episodes) == sorted(model.drawn)


def test_reward_receives_the_returned_value_and_the_episode(model: Scripted) -> None:
    model.script = lambda prompt: "7"
    judged: list[Any] = []

    def reward(answer: Any, row: dict[str, Any], episode: Episode) -> float:
        judged.append((answer, row["answer"], len(episode.segments), episode.answer))
        return answer["value"] / 10  # type: ignore[no-any-return]

    def agent(row: dict[str, Any], endpoint: Endpoint) -> dict[str, float]:
        return {"value": float(answers(row, endpoint))}

    (episode,) = rollouts(model, agent, reward=[reward, "exact_match"])
    assert judged == [({"value": 7.0}, "7", 1, '{"value": 7.0}')]
    assert [(term.name, term.value) for term in episode.rewards] == [("reward", 0.7), ("exact_match", 0.0)]


def test_a_header_names_the_role_of_a_call(model: Scripted) -> None:
    model.script = lambda prompt: "7"

    def agent(row: dict[str, Any]) -> str:
        for role in ("planner", "worker"):
            client = openai.OpenAI(default_headers={"x-keepworth-role": role})
            client.chat.completions.create(model="tiny", messages=HELLO)
        return answers(row, Endpoint(os.environ["ANTHROPIC_BASE_URL"], ""))

    (episode,) = rollouts(model, agent)
    assert [call.role for call in episode.segments] == ["planner", "worker", "policy"]


def test_a_model_that_fails_ends_the_run_and_not_a_rollout(model: Scripted) -> None:
    def fails(prompt: str) -> str:
        raise MemoryError("no room")

    model.script = fails
    with pytest.raises(MemoryError, match="no room"):
        rollouts(model, chats)


# Processes that an agent starts.

READS_ADDRESS = [sys.executable, "-c", "import os; print(os.environ['OPENAI_BASE_URL'])"]


def test_a_command_that_a_function_starts_has_the_address_of_its_rollout(
    model: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "https://provider.example/v1")
    model.script = lambda prompt: "7"
    seen: list[str] = []

    async def waits(row: dict[str, Any], endpoint: Endpoint) -> str:
        process = await asyncio.create_subprocess_exec(*READS_ADDRESS, stdout=subprocess.PIPE)
        seen.append((await process.communicate())[0].decode().strip().removeprefix(endpoint.openai))
        return await asyncio.to_thread(answers, row, endpoint)

    def runs(row: dict[str, Any], endpoint: Endpoint) -> str:
        seen.append(subprocess.check_output(READS_ADDRESS, text=True).strip().removeprefix(endpoint.openai))
        named = {"OPENAI_BASE_URL": "mine"}  # an environment of its own stays as it is
        seen.append(subprocess.check_output(READS_ADDRESS, text=True, env=named).strip())
        return answers(row, endpoint)

    for agent in (runs, waits):
        (episode,) = rollouts(model, agent)
        assert episode.reward == 1.0, episode.errors
    assert seen == ["", "mine", ""]
    assert subprocess.check_output(READS_ADDRESS, text=True).strip() == "https://provider.example/v1"


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are listed by Linux")
@pytest.mark.parametrize("ends", ["sleep 60", "exit 0"])
def test_a_process_that_left_the_session_of_its_command_ends_with_it(
    model: Scripted, ends: str, tmp_path: Path
) -> None:
    file = tmp_path / "process"
    line = f"setsid sh -c 'echo $$ >{file}; exec sleep 90' & while ! test -s {file}; do sleep .05; done; {ends}"
    rollouts(model, line, seconds=3.0)
    assert not is_running(int(file.read_text()))


@pytest.mark.parametrize("kind", ["function", "coroutine"])
def test_a_copy_that_an_agent_makes_of_the_process_ends_where_the_agent_does(model: Scripted, kind: str) -> None:
    model.script = lambda prompt: "7"
    copies: list[int] = []

    def forks(row: dict[str, Any], endpoint: Endpoint) -> str:
        copy = os.fork()
        if copy:
            copies.append(copy)
        return answers(row, endpoint) if copy else "7"

    async def forks_in_a_loop(row: dict[str, Any], endpoint: Endpoint) -> str:
        return forks(row, endpoint)

    (episode,) = rollouts(model, forks if kind == "function" else forks_in_a_loop)
    assert (episode.reward, len(episode.segments)) == (1.0, 1)
    (copy,) = copies
    until = time.monotonic() + 20
    while os.waitpid(copy, os.WNOHANG) == (0, 0):
        assert time.monotonic() < until, "the copy goes on"
        time.sleep(0.05)


def is_running(process: int) -> bool:
    """A process that was ended may wait for its parent for a moment."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        if state == "Z":
            return False
        time.sleep(0.05)
    return True


@pytest.mark.parametrize(
    ("path", "call"), [("/messages", {"messages": HELLO, "max_tokens": 9}), ("/responses", {"input": "Hello."})]
)
def test_options_of_chat_completions_are_refused_where_an_answer_cannot_show_them(
    model: Scripted, path: str, call: dict[str, Any]
) -> None:
    """With `n`, answers that the agent never saw would be trained on."""
    model.script = lambda prompt: "7"
    refused: list[tuple[int, bool]] = []

    def agent(row: dict[str, Any], endpoint: Endpoint) -> str:
        with httpx.Client(base_url=endpoint.openai, trust_env=False, timeout=60) as client:
            for name, value in (("n", 3), ("logprobs", True), ("stop", ["7"])):
                answer = client.post(path, json={**call, name: value})
                refused.append((answer.status_code, f"{name} is no field of /v1{path}" in answer.text))
            client.post(path, json={**call, "cache_control": {"type": "ephemeral"}}).raise_for_status()
        return "7"

    (episode,) = rollouts(model, agent)
    assert refused == [(400, True)] * 3
    assert len(episode.segments) == len(model.drawn) == 1
