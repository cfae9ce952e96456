"""Systems in a process of their own: what they are told and answer, and what is said where they fail."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.evaluation import rivals
from keepworth.base.errors import KeepworthError
from keepworth.evaluation.foreign import ForeignSystem
from keepworth.evaluation.harness import Conditions
from keepworth.evaluation.named_systems import maker
from keepworth.evaluation.system import AskedQuestion, NeverAnswered, SystemFailed, haystack
from tests.evaluation.test_harness import Copies, ran, tasks_of

PAGE = Path(__file__).parents[2] / "docs" / "systems.md"


def embed(texts: Any) -> Any:
    return np.array([[len(text), 1.0] for text in texts], dtype=np.float32)


def program(tmp_path: Path, on_ask: str, before: str = "") -> list[str]:
    """A system that runs `on_ask` where it is asked; it may set `answer`."""
    script = tmp_path / "memory.py"
    body = "\n".join(f"        {line}" for line in on_ask.splitlines())
    script.write_text(
        f"import json, os, subprocess, sys, time\n{before}\nentries, told = {{}}, []\n"
        "def embed(texts):\n"
        "    print(json.dumps({'embed': texts}), flush=True)\n"
        "    return json.loads(sys.stdin.readline())['vectors']\n"
        "for line in sys.stdin:\n    request = json.loads(line)\n    answer = {}\n"
        "    if request['op'] == 'begin':\n        entries.clear()\n        folder = request['folder']\n"
        "    if request['op'] == 'write':\n        entries.update((e['id'], e) for e in request['entries'])\n"
        "    if request['op'] == 'learn':\n        told.append(request['reward'])\n"
        f"    if request['op'] == 'ask':\n        question = request['question']\n{body}\n"
        "    print(json.dumps(answer), flush=True)\n"
    )
    return [sys.executable, "-S", str(script)]


def made(tmp_path: Path, on_ask: str, before: str = "") -> ForeignSystem:
    system = ForeignSystem(program(tmp_path, on_ask, before), embed)
    system.begin(0)
    system.write(haystack(tasks_of(1)[0]))
    return system


QUESTION = AskedQuestion("What is Word0?", 3)


def test_the_program_of_the_page_is_a_system(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    (tmp_path / "my_memory.py").write_text(example)
    tasks = tasks_of(3)
    tasks = [replace(task, input=f"word{number} is what?") for number, task in enumerate(tasks)]
    rows = ran(maker(f"command:{sys.executable} {tmp_path / 'my_memory.py'}", lambda: None), tasks)  # type: ignore[arg-type,return-value]
    assert [row.scores["score"] for row in rows] == [1.0, 1.0, 1.0]
    assert all(row.recall["turn@1"] == 1.0 and not row.error for row in rows)


def test_a_program_shows_entries_texts_of_its_own_or_answers(tmp_path: Path) -> None:
    system = made(
        tmp_path,
        "first, second, *_ = entries\n"
        "vectors = embed(['abc', 'é'])\n"
        "answer = {'shown': [first, {'id': second, 'text': 'short', 'score': vectors[0][0]}, {'id': '', 'text': folder}],\n"
        "          'answer': 'mine', 'calls': 2}",
    )
    found = system.ask(QUESTION)
    assert (found.answer, found.calls) == ("mine", 2)
    assert [(each.item, each.score) for each in found.shown] == [("s0/0.0", 1.0), ("s0/1.0", 3.0), ("", 1 / 3)]
    assert found.shown[0].text.endswith("Talk 0 about nothing.")
    assert found.shown[1].text == "short"
    assert system.holds(["s0/0.0"]) is None
    assert system.size() is None
    folder = Path(found.shown[2].text)
    assert folder.is_dir()
    system.close()
    assert not folder.exists()


@pytest.mark.parametrize(
    ("on_ask", "said"),
    [
        ("print('Loading weights')", "answered 'Loading weights', where one JSON object on one line is expected"),
        ("answer = []", "answered '\\[\\]', where one JSON object"),
        ("pass", 'answered {}, where "shown" or "answer" is expected'),
        ("answer = {'shown': ['s9/1.0']}", "the id 's9/1.0', where ids that it was told"),
        ("answer = {'shown': 3}", "shown 3, where another value"),
        ("answer = {'shown': [4]}", "answered shown.0 4, where another value"),
        ("answer = {'shown': [{'id': '', 'score': 'high', 'text': ''}]}", "answered shown.*'high', where another"),
        ("answer = {'answer': 4}", "answered answer 4, where another value"),
        ("answer = {'answer': '', 'calls': -1}", "answered calls -1, where another value"),
        ("answer = {'bytes': -5}", "answered bytes -5, where another value"),
        ("answer = {'bytes': True}", "answered bytes True, where another value"),
        ("embed('abc')", "answered embed 'abc', where another value"),
        ("answer = {'error': 'no such index'}", "ask failed in .*: no such index"),
        ("print('out of memory', file=sys.stderr)\nsys.exit(7)", "ended with code 7: out of memory"),
        ("1 / 0", "ended with code 1: .*ZeroDivisionError"),
    ],
)
def test_invalid_answer_of_a_foreign_system_is_named(tmp_path: Path, on_ask: str, said: str) -> None:
    system = made(tmp_path, on_ask)
    with pytest.raises(SystemFailed, match=said):
        system.ask(QUESTION)
    system.close()


def test_a_program_that_ended_fails_until_the_next_haystack(tmp_path: Path) -> None:
    ends = program(tmp_path, "if 'Word1' in question: sys.exit('enough')\nanswer = {'shown': list(entries)[3:4]}")
    rows = ran(lambda: ForeignSystem(ends, embed), [*tasks_of(3), *tasks_of(2)[1:]])
    assert [row.scores["score"] for row in rows] == [1.0, 0.0, 0.0, 1.0]
    assert all(row.error.endswith("ended with code 1: enough") for row in rows[1:3])


def test_a_program_that_never_answers_ends_its_arm_with_its_last_words(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    dies = f"import sys\nopen({str(starts)!r}, 'a').write('x')\nsys.exit('no such module')"
    with pytest.raises(NeverAnswered, match="ended with code 1: no such module"):
        ran(lambda: ForeignSystem([sys.executable, "-S", "-c", dies], embed), tasks_of(4))
    assert starts.read_text() == "x"
    with pytest.raises(NeverAnswered, match="cannot be started"):
        ran(lambda: ForeignSystem([str(tmp_path / "nofile")], embed), tasks_of(4))


def test_a_program_that_hangs_is_ended_with_its_children_and_begins_again(tmp_path: Path, monkeypatch: Any) -> None:
    hangs = (
        "if 'Word1' in question:\n"
        "    child = subprocess.Popen(['sleep', '600'])\n"
        "    print('thinking', child.pid, file=sys.stderr, flush=True)\n"
        "    open('hangs', 'w').close()\n"
        "    time.sleep(600)\n"
        "answer = {'shown': list(entries)[3:4]}"
    )
    limits: list[float] = []

    class OverWhenItHangs(threading.Timer):
        """Its time is over as soon as the program hangs, however long that takes to begin."""

        def run(self) -> None:
            limits.append(self.interval)
            while not self.finished.wait(0.01):
                if (tmp_path / "hangs").exists():
                    (tmp_path / "hangs").unlink()
                    self.function()
                    return

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(threading, "Timer", OverWhenItHangs)
    rows = ran(lambda: ForeignSystem(program(tmp_path, hangs), embed, 1.0), tasks_of(3), Conditions(tokens=8))
    assert min(limits) == 1.0
    assert [row.scores["score"] for row in rows] == [1.0, 0.0, 1.0]
    said = re.fullmatch(r"ask did not come back within 1 s; it last said: thinking (\d+)\.", rows[1].error)
    assert said, rows[1].error
    assert gone(int(said[1]))


def gone(process: int) -> bool:
    """Whether it has ended; one that nobody waited for is a zombie."""
    for _ in range(50):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        state = Path(f"/proc/{process}/stat")
        if state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


def test_it_is_told_rewards_where_the_setting_says_so(tmp_path: Path) -> None:
    script = program(tmp_path, "answer = {'shown': [{'id': '', 'text': str(told)}]}")

    class Reads(Copies):
        def answers(self, queries: Any) -> list[str]:
            super().answers(queries)
            return ["value0" for _ in queries]

    reader = Reads()
    ran(lambda: ForeignSystem(script, embed), tasks_of(3, alike=True), Conditions(setting="live"), reader)
    assert [texts[0] for _, texts in reader.asked] == ["[]", "[1.0]", "[1.0, 1.0]"]


def test_unrunnable_command_is_refused_first() -> None:
    for name, said in (
        ("command:no-such-program-here", "there is no program 'no-such-program-here'"),
        ("command:", "names no program"),
        ("command:python 'x", "no command line"),
        ("comand:python", "There is no system 'comand:python'"),
    ):
        with pytest.raises(KeepworthError, match=said):
            maker(name, lambda: None)  # type: ignore[arg-type,return-value]


def test_a_rival_speaks_the_same_lines(tmp_path: Path) -> None:
    """The file runs without anything of ours, and keeps its answers apart from what a package prints."""
    (tmp_path / "bm25s.py").write_text(
        "print('a package that prints')\n"
        "def tokenize(texts, **options):\n    return [text.lower().split() for text in texts]\n"
        "class BM25:\n"
        "    def index(self, texts, **options):\n        self.texts = texts\n"
        "    def retrieve(self, asked, k, **options):\n"
        "        scores = [len(set(asked[0]) & set(text)) for text in self.texts]\n"
        "        rows = sorted(range(len(scores)), key=lambda row: -scores[row])[:k]\n"
        "        return [rows], [[scores[row] for row in rows]]\n"
    )
    lines = [
        {"op": "begin", "seed": 0, "folder": str(tmp_path)},
        {"op": "write", "entries": [{"id": "a", "text": "red house"}, {"id": "b", "text": "blue house"}]},
        {"op": "ask", "question": "blue", "most": 5, "asked_at": "", "options": []},
        {"op": "holds", "ids": ["a", "c"]},
        {"op": "learn", "reward": 1.0, "shown": ["a"]},
        {"op": "size"},
        {"op": "unheard", "of": 1},
    ]
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import runpy; sys.argv = ['x', 'bm25s']; "
    code += f"runpy.run_path({rivals.__file__!r}, run_name='__main__')"
    given = "".join(json.dumps(line) + "\n" for line in lines)
    done = subprocess.run([sys.executable, "-I", "-c", code], input=given, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "a package that prints" in done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert answers[1:6] == [{}, {"shown": [{"id": "b", "score": 1.0}]}, {"holds": ["a"]}, {}, {}]
    assert "unheard" in answers[6]["error"]
