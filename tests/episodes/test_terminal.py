"""Nothing that is data is obeyed by a terminal: no control byte but line breaks and our own styling leaves the renderer."""

from __future__ import annotations

import ast
import io
import json
import re
import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from keepworth.base.text import json_line, one_line, printable, terminal
from tests.sources import SOURCE, files, nodes

TURNING = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
HOSTILE = "\x1b]0;PWNED\x07\x1b[2J\x9b5m\x1b]8;;http://evil\x1b\\\r\x08\x00\u202e\u2028\ud800 [bold]x[/nope] :smile:"
texts = st.text(st.one_of(st.sampled_from([*HOSTILE, *TURNING, "[", "]", "/", "\t"]), st.characters()), max_size=40)
STYLING = re.compile(r"\x1b\[[0-9;]*m")


def obeyed(text: str) -> list[str]:
    """What of `text` a terminal would not just show."""
    controls = (c for c in text if unicodedata.category(c) in ("Cc", "Cs") and c != "\n")
    return [*controls, *(c for c in text if c in TURNING + "\u2028\u2029")]


def everywhere(text: str) -> Group:
    table = Table(text, title=text, caption=text)
    table.add_row(text)
    table.add_row(Text.assemble((text, "bold"), text))
    return Group(Text(text), Panel(Text(text), title=Text(text)), table)


@settings(max_examples=300, deadline=None)
@given(texts)
def test_renderer_emits_no_control_sequences(text: str) -> None:
    for colours in (None, "truecolor"):
        out = io.StringIO()
        console = terminal(file=out, force_terminal=True, color_system=colours, width=60)
        console.print(text, everywhere(text), style="red")
        console.print(text, soft_wrap=True)
        console.rule(text)
        assert obeyed(STYLING.sub("", out.getvalue())) == []
        if colours is None:
            assert "\x1b" not in out.getvalue()
    assert obeyed(printable(text)) == []
    assert len(printable(text)) == len(text)
    assert "\n" not in one_line(text)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(texts, texts, max_size=3))
def test_json_says_the_same_and_is_not_obeyed(record: dict[str, str]) -> None:
    for settled in ({}, {"indent": 2}):
        line = json_line(record, **settled)
        assert obeyed(line) == []
        assert json.loads(line) == record


def test_markup_in_data_is_data() -> None:
    out = io.StringIO()
    terminal(file=out, width=200).print("[bold]x[/nope]", Text("[/]"), ":smile:")
    assert out.getvalue() == "[bold]x[/nope] [/] :smile:\n"


def test_ordinary_text_is_as_it_was() -> None:
    text = "Ana's café: 12 naïve questions? 日本語 👩‍👩‍👧 שלום\nsecond line"
    assert printable(text) == text
    assert json_line({"a": text}) == json.dumps({"a": text}, ensure_ascii=False)


def test_all_printing_uses_the_renderer() -> None:
    """Consoles are made in one place, and lines are printed by one function."""
    found = set()
    for path in files():
        for node in nodes(path):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if called == "Panel" and path.parent.name == "cli":
                titles = [word.value for word in node.keywords if word.arg in ("title", "subtitle")]
                assert all(ast.unparse(title).startswith("Text(") for title in titles), "a text here would be markup"
            if called in ("Console", "rich.print", "typer.echo", "typer.secho", "print"):
                found.add((path.relative_to(SOURCE).as_posix(), called))
    assert found == {("cli/output.py", "typer.echo")}
