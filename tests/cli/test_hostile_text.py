"""Runs and memories that hold terminal sequences and markup: what every command prints of them is only shown."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from keepworth import Memory
from keepworth.cli import output
from tests.cli.conftest import CommandLine
from tests.episodes.test_terminal import obeyed
from tests.evaluation.sample_run import sample_run

EVIL = "\x1b]0;PWNED\x07\x1b[2J\x1b[31mRED\x9b5m\u202e [bold red]x[/bold red] [/nope] "


def spoilt(value: Any, keys: tuple[str, ...] = (), key: str = "") -> Any:
    """`value` with hostile text in front of every string below one of `keys`."""
    if isinstance(value, dict):
        return {name: spoilt(each, keys, name) for name, each in value.items()}
    if isinstance(value, list):
        return [spoilt(each, keys, key) for each in value]
    return EVIL + value if isinstance(value, str) and key in keys else value


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    run = sample_run(folder / "evil", steps=4)
    for path in (run.path / "episodes").glob("*.gz"):
        texts = ("question", "answer", "text", "item", "task", "expected", "errors", "outcome", "role", "input", "name")
        with gzip.open(path, "rt", encoding="utf-8") as stored:
            lines = [json.dumps(spoilt(json.loads(line), texts)) for line in stored]
        with gzip.open(path, "wt", encoding="utf-8") as out:
            out.writelines(f"{line}\n" for line in lines)
    for name, keys in (("evals.jsonl", ("arm", "metric", "split")), ("metrics.jsonl", ())):
        path = run.path / name
        rows = [spoilt(json.loads(line), keys) for line in path.read_text().splitlines()]
        for row in rows:
            row |= {f"reward/{EVIL}": 1.0} if name == "metrics.jsonl" else {}
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    result = spoilt(json.loads((run.path / "result.json").read_text()), ("title", "note", "label", "arm", "headline"))
    (run.path / "result.json").write_text(json.dumps({**result, "headline": EVIL}))
    config = json.loads((run.path / "config.json").read_text())
    config["config"][EVIL] = EVIL
    (run.path / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ["show", "evil"],
        ["show", "evil", "--episodes", "--limit", "3"],
        ["show", "evil", "--episodes", "--role", "manager", "--limit", "3"],
        ["show", "evil", "--episodes", "--arm", EVIL],
        ["report", "evil"],
        *(["show", EVIL], ["eval", "answerer", EVIL], ["train", EVIL], ["memory", "list", "--file", EVIL], [EVIL]),
    ],
)
def test_a_run_is_shown_and_not_obeyed(evil: Path, command: CommandLine, words: list[str]) -> None:
    named = ["--runs", str(evil)] if words[0] in ("show", "report", "eval") else []
    code, out, err = command(*words, *named)
    assert code in (0, 2), err
    assert obeyed(out + err) == []
    assert "MarkupError" not in err


def test_a_memory_is_shown_and_not_obeyed(tmp_path: Path, command: CommandLine) -> None:
    path = tmp_path / "a.mem"
    with Memory(path, encoder="hashing") as memory:
        text = "hello\n    m99  forged \u202e [red]x[/nope]"
        item = memory.add(text, source=EVIL, metadata={"a": EVIL}, user_id="ana")
    for words in (["list"], ["show", item.id], ["history", item.id], ["search", "hello"], ["stats"], ["check"]):
        code, out, err = command("memory", *words, "--file", str(path))
        assert (code, obeyed(out + err)) == (0, []), words
        assert "\n    m99" not in out, "a text must not pass for a line of ours"
    line = command.done("memory", "list", "--json", "--file", str(path))
    assert obeyed(line) == []
    with Memory(path, encoder="hashing") as memory:
        assert json.loads(line)["text"] == memory.get(item.id).text


def test_a_traceback_is_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    assert output.report_bug(ValueError(f"broken {EVIL}")) == 1
    said = capsys.readouterr().err
    assert obeyed(said) == []
    assert "something broke inside keepworth: ValueError: broken" in said


def test_items_and_hits_are_read_in_eighty_columns_and_not_obeyed() -> None:
    text = "Ana likes tofu\n    m99  <script>alert(1)</script> \u202e [red]x[/nope] " + "and more of it " * 30
    with Memory(":memory:", encoder="hashing") as memory:
        item = memory.add(text, user_id="ana", source=EVIL)
        other = memory.add("Bo likes tea")
        hits = memory.search("tofu")
        memory.reward(hits.decision, 1.0)
        known = memory.get(item.id)
        memory.supersede(other.id, "Bo likes coffee")
        old = memory.get(other.id)
    for shown in (str(hits), str(known), str(old)):
        assert obeyed(shown) == []
    assert max(map(len, str(hits).splitlines())) <= 80
    assert str(hits).startswith(f"{hits[0].score:.4f}  ")
    assert repr(hits).startswith(f"[Hit({item.id}, {hits[0].score:.4f}, {item.text[:97] + '...'!r})")
    assert repr(old).startswith("Item(id='m2', text='Bo likes tea', kind='fact'")
    assert "links" not in repr(known), "nothing that is as usual"
