"""What cannot be served is said before anything is loaded."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from keepworth import Client
from keepworth.cli.serve import _model_or_run, _say_memory
from keepworth.memory.place import place_of
from keepworth.serving.memory_server import MemoryServer
from keepworth.training.run_folder import RunFolder
from tests.cli.conftest import CommandLine
from tests.serving.memory_process import TOKEN, MemoryProcess


@pytest.fixture(autouse=True)
def nothing_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keepworth.models.inprocess.InProcessModel.load", lambda *_, **__: pytest.fail("loaded"))
    for name in ("KEEPWORTH_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def test_port_in_use_is_reported_before_loading(command: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = command.refused("serve", "smollm2-135m-instruct", "--memory", "a.mem", "--port", str(port))
    assert f"Port {port} of 127.0.0.1 cannot be listened on" in said
    assert "--port 0" in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "There is no memory to serve"),
        (["both", "--memory", "a.mem", "--role", "manger"], "Did you mean 'manager'"),
        (["none", "--memory", "a.mem"], "has not finished training a role"),
        (["bothh"], "Did you mean 'both'"),
        (["nomodel"], "no model or run 'nomodel'.\n  hint: Known: both, lab-small, none, smollm2-135m-instruct."),
        (["bothh", "--memory", "a.mem"], "Did you mean 'both'"),
        (["owner/tiny", "--memory", "a.mem", "--upstream", "http://127.0.0.1:1"], "owner/tiny is what answers"),
        (["both", "--memory", "a.mem"], "trained answerer and manager"),
        (["both", "--memory", "a.mem", "--upstream", "http://127.0.0.1:1"], "both is what answers"),
        (["both", "--memory", "a.mem", "--stdio"], "--stdio serves its host alone"),
        (["--memory", "a.mem", "--role", "answerer"], "--role names a role of a run"),
        (["--memory", "a.mem", "--memory-items", "3"], "--call-mb are of a gateway"),
        (["--memory", "a.mem", "--threshold", "0"], "--call-mb are of a gateway"),
        (["--memory", "a.mem", "--call-mb", "20"], "--call-mb are of a gateway"),
        (["--memory", "a.mem", "--no-signals", "--model-signals", "5"], "--no-signals takes no signal"),
        (["--memory", "a.mem", "--model-signals", "-1"], "greater than or equal to 0"),
        (["--memory", "a.mem", "--writer", "ruels"], "Did you mean 'rules'"),
        *((["--memory", path], "Name a file, such as agent.mem") for path in ("", ".", "/")),
        *(
            (["--memory", "a.mem", "--upstream", url, "--upstream-key", "none"], "address cannot be read")
            for url in ("http://[::1", "http://x:80000/v1", "http://x:port/v1")
        ),
        (["--stdio"], "Name it: keepworth serve --memory"),
        (["--memory", "a.mem", "--stdio", "--mcp"], "serves its host alone"),
        (["--memory", "a.mem", "--stdio", "--workers", "2"], "Leave --workers out"),
        (["both", "--memory", "a.mem", "--workers", "2"], "Each of 2 workers would load both"),
        (["--memory", ":memory:", "--workers", "2"], "in no file cannot be served by several processes"),
        (["--memory", "a.mem", "--user", "ana"], "a token says whose memory it is"),
        (
            ["--memory", "a.mem", "--upstream", "http://x/v1", "--upstream-key", "NO_SUCH"],
            "variable NO_SUCH, which is not",
        ),
        (
            ["--memory", "a.mem", "--upstream", "https://api.example.com/v1"],
            "variable OPENAI_API_KEY, which is not set",
        ),
    ],
)
def test_mistakes_are_named(arguments: list[str], says: str, tmp_path: Path, command: CommandLine) -> None:
    for name, roles in (("both", ("answerer", "manager")), ("none", ())):
        with RunFolder.create(tmp_path / "runs" / name, {}) as run:
            for role in roles:
                with run.writing_weights(role) as folder:
                    (folder / "weights.safetensors").write_bytes(b"")
    assert says in command.refused("serve", *arguments, "--port", "0")


def test_a_run_is_named_as_a_model_is(tmp_path: Path, command: CommandLine) -> None:
    runs = tmp_path / "runs"
    for name in ("mine", "smollm2-135m-instruct"):
        RunFolder.create(runs / name, {}).close()
    said = command.refused("serve", str(runs / "mine"), "--memory", "a.mem", "--port", "0")
    assert "has not finished training a role" in said
    for model in ("smollm2-135m-instruct", "owner/name", ""):
        assert _model_or_run(model, runs) == (model, "")
    for run in ("mine", str(runs / "smollm2-135m-instruct")):
        assert _model_or_run(run, runs) == ("", run)


def test_serve_prints_the_address_of_each_service(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mcp")
    file = tmp_path / "agent.mem"
    for mcp, upstream in ((True, ""), (False, "http://127.0.0.1:9/v1")):
        with MemoryServer(file, encoder=None, mcp=mcp, upstream=upstream) as server:
            _say_memory(server, place_of(file), "127.0.0.1")
            said = capsys.readouterr().out
            assert f"token: {server.token}" in said
            assert f"page:  {server.url}/#token={server.token}" in said
            assert (f"MCP (streamable HTTP): {server.url}/mcp" in said) == mcp
            assert (f"base_url={server.url}/v1" in said) == bool(upstream)
            assert ("No key is sent upstream, as OPENAI_API_KEY is not set." in said) == bool(upstream)


def test_no_signals_leaves_reported_rewards_alone(tmp_path: Path) -> None:
    for options, sources in (((), ["signal:tool-failed", "user"]), (("--no-signals",), ["user"])):
        with MemoryProcess(tmp_path / f"{len(options)}.mem", *options) as process, Client(process.url, TOKEN) as client:
            client.add("build with make")
            with client.episode("build the docs") as episode:
                episode.search("how do I build")
                outcome = episode.signal(command="make deploy", failed=True)
                assert outcome.applied == (not options)
                episode.reward(1.0)
            assert sorted(seen.source for seen in client.outcomes() if seen.rewards) == sources
