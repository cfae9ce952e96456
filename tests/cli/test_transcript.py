"""The commands of `keepworth memory` and its tools answer word for word as before: a transcript of a session with each of them.

`python -m tests.cli.test_transcript` writes `tests/goldens/command_line.txt` and `tools.json` anew. A change of them is explained
in the commit that changes them.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import tempfile
from pathlib import Path
from typing import Any

import anyio
import pytest
from typer.testing import CliRunner

from keepworth.base.errors import KeepworthError
from keepworth.cli.main import app
from tests.cli.test_command import commands

GOLDENS = Path(__file__).resolve().parents[1] / "goldens"
TEXT, TOOLS = GOLDENS / "command_line.txt", GOLDENS / "tools.json"
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("add_memory", {"text": "Ana lives in Oslo", "event_time": "2025-01-01", "metadata": {"topic": "home"}}),
    ("add_memory", {"text": "Ana plays the cello", "kind": "lesson", "ttl": 3600}),
    ("add_memory", {"text": ""}),
    ("start_episode", {"task": "where to send the letter"}),
    ("search_memories", {"query": "where does Ana live", "episode": "E1", "top_k": 1}),
    ("search_memories", {"query": "cello", "tokens": 1}),
    ("search_memories", {"query": "cello", "top_k": 101}),
    ("search_memories", {}),
    ("report_outcome", {"target": "E1", "value": 1}),
    ("report_outcome", {"target": "E1", "value": "good"}),
    ("update_memory", {"id": "m2", "text": "Ana plays the viola"}),
    ("supersede_memory", {"id": "m1", "text": "Ana lives in Rome", "event_time": "2026-01-01"}),
    ("get_memory", {"id": "m1"}),
    ("get_memory", {"id": "m2", "start": 4, "tokens": 1}),
    ("get_memory", {"id": "m999"}),
    ("list_memories", {"limit": 1}),
    ("list_memories", {"tokens": 1}),
    ("list_memories", {"user_id": "bo"}),
    ("memory_history", {"id": "m1"}),
    ("memory_history", {"id": "m1", "after": 1}),
    ("rollback_episode", {"episode": "E1"}),
    ("rollback_episode", {"episode": "e999"}),
    ("delete_memory", {"id": "m2"}),
    ("delete_memory", {"id": "m2"}),
    ("forget_everything", {}),
]
SESSION = r"""
search tofu
add "Ana likes tofu" --user ana --encoder hashing:64
add "Ana lives in Oslo" --user ana --at 2026-01-01 --kind fact --json
add - --user ana --source facts.txt < Ana likes tofu\nAna plays the cello\n
add - <
add "I am allergic to peanuts" --user bo --infer
add "ok" --user bo --infer
add "my card is 4111 1111 1111 1111"
add "x" --kind feeling
add "x" --at yesterday
put diet "eats no meat" --user ana
put diet "eats fish" --user ana --json
put diet --user ana
put nothing --user ana --json
list
list --limit 2 --after m1 --json
list --user nobody
list --all --where name=diet
list --where '{"name": {"$gte": '
list --limit 0
show m1
show m1 --json
show m999
history m1
history m1 --json
update m1 "Ana likes smoked tofu"
update m1 --trust 0.5 --expires 2030-01-01 --json
update m1 --trust 2
supersede m2 "Ana lives in Bergen" --at 2026-06-01 --json
search "what does Ana eat" --user ana --top-k 2 --explain
search Oslo --as-of 2026-05-01 --mode lexical --json
search tofu --where name=diet
search tofu --user nobody
search tofu --mode best
search tofu --top-k 0
quarantine
quarantine --release m5 --json
quarantine
snapshot
snapshot --json
episode begin "what to cook" --user ana --by judge
episode begin "what to bake" --json
episode search E1 tofu --top-k 1
episode search E1 --json
episode act E1 "tofu curry"
episode act E1 "served it" --json
episode end E1
episode end E2 --outcome "nobody came" --json
episode list
episode list --user ana --limit 1 --json
episode list --after E2
episode show E1
episode show E1 --json
episode show e999
pending
pending --json
pending --user nobody
reward E1 1
reward E1 1
reward E1 0.5 --by ana --source manual --json
reward D1 0 --json
reward E1 -3
reward e999 1
worth m1 tofu
worth m1 tofu --json
worth m4 tofu
ledger
ledger --json
ledger --item m1 --all
ledger --source nowhere
ledger --user nobody
review
review --user nobody --json
outcomes
outcomes --user nobody
promotion
diff s0
diff s12 s16 --json
diff s16 s16
diff nowhere
rollback --source facts.txt
rollback --source facts.txt --json
rollback E1
rollback --since s14 --json
rollback --entry 2
rollback --rewarder ana
rollback
forget m1
forget m1 m2 --json
forget
forget m1 --older-than 3
forget m1 --user ana
forget m1 --yes
forget --older-than -1
forget --older-than 0 --user bo
forget m3 --purge --yes
forget --older-than 0 --user ana --purge --yes --json
erase
erase --user ana
erase --user ana --yes
erase --user ana --yes --json
stats
stats --json
check --quick
check --json
compact --yes
compact --json
reembed hashing:32
backup copy.mem
backup copy.mem
export all.jsonl
export notes.jsonl --to jsonl --json
export - --to jsonl
export - --json
import all.jsonl --file other.mem --json
import notes.jsonl --from jsonl --file third.mem --user cy
export notes --to folder --file third.mem
import notes --file third.mem --json
export notes.json --to pam --file third.mem --json
import notes.json --file third.mem
export again.md --to markdown
experiment restore
quarantine --file third.mem
quarantine --release m1 --file third.mem --json
token add --user ana --role read --name phone
token list
token remove t999
"""


class Masks:
    """Names for what differs from one run to the next: ids by their order, times and sizes."""

    IDS = (
        (r"\be[0-9a-f]{12,}\b", "E"),
        (r"\bd[0-9a-f]{12,}\b", "D"),
        (r"\bt[0-9a-f]{4,}\b", "T"),
        (r"\bkw_[\w-]+", "K"),
    )

    def __init__(self) -> None:
        self.ids: dict[str, str] = {}

    def hide(self, text: str) -> str:
        text = re.sub(r"\d\.\d{6}\d+", lambda number: f"{float(number[0]):.6g}", text)
        text = re.sub(r"(bytes\D+)[\d,]+", r"\1N", text)
        text = re.sub(r"\b\d{4}-\d\d-\d\dT(?!00:00:00)[\d:.]+Z?", "TIME", text)
        for pattern, letter in self.IDS:
            for id in re.findall(pattern, text):
                number = 1 + sum(name[0] == letter for name in self.ids)
                if id not in self.ids.values():
                    self.ids[f"{letter}{number}"] = id
        for name, id in self.ids.items():
            text = text.replace(id, name)
        return text


def transcript() -> str:
    """The help of every command of memory, and what each says in a session."""
    lines: list[str] = []
    for words, _ in commands():
        if words[:1] == ("memory",):
            help = CliRunner().invoke(app, [*words, "--help"], prog_name="keepworth", env={"COLUMNS": "100"}).output
            lines.append(f"$ keepworth {' '.join(words)} --help\n{help}")
    masks = Masks()
    for line in SESSION.strip().splitlines():
        call, _, text = line.partition(" <")
        words = [masks.ids.get(word, word) for word in shlex.split(call)]
        ran = CliRunner().invoke(
            app, ["memory", *words], input=text.lstrip().replace("\\n", "\n"), prog_name="keepworth"
        )
        ends = f"{ran.output}[{ran.exit_code}]"
        if isinstance(ran.exception, KeepworthError):
            ends += f" {type(ran.exception).__name__}: {ran.exception.message} | {ran.exception.fix}"
        elif ran.exception is not None and not isinstance(ran.exception, SystemExit):
            raise ran.exception
        lines.append(f"$ {line}\n{masks.hide(ends)}\n")
    return "\n".join(lines)


async def tools() -> dict[str, Any]:
    """How hosts see the tools, and what each answers in a session."""
    from mcp import Client

    from keepworth.serving.access import Access
    from keepworth.serving.mcp_tools import mcp_server
    from keepworth.serving.open_memories import OpenMemories

    masks, answers = Masks(), []
    memories = OpenMemories("tools.mem", {"encoder": "hashing:64"})
    async with Client(mcp_server(memories, Access("session", user_id="ana"))) as client:
        listed = [tool.model_dump(mode="json", exclude_none=True) for tool in (await client.list_tools()).tools]
        for name, values in CALLS:
            arguments = {key: masks.ids.get(str(value), value) for key, value in values.items()}
            answer = await client.call_tool(name, arguments)
            text = answer.content[0].text
            assert answer.is_error or json.loads(text) == answer.structured_content
            answers.append([name, values, masks.hide(text).splitlines()])
    memories.close()
    return {"tools": listed, "answers": answers}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("KEEPWORTH_MEMORY", raising=False)


def test_memory_commands_print_the_recorded_transcript(here: None) -> None:
    assert transcript().splitlines() == TEXT.read_text(encoding="utf-8").splitlines()


def test_tools_of_memory_are_described_and_answer_as_before(here: None) -> None:
    pytest.importorskip("mcp")
    assert anyio.run(tools) == json.loads(TOOLS.read_text(encoding="utf-8"))


if __name__ == "__main__":
    os.environ["COLUMNS"] = "100"
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        TEXT.write_text(transcript(), encoding="utf-8")
        TOOLS.write_text(json.dumps(anyio.run(tools), indent=1) + "\n", encoding="utf-8")
