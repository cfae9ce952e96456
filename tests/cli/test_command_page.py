"""The pages on the command line are made of the commands.

`python -m tests.cli.test_command_page` writes them, and so does `make docs`.
"""

from __future__ import annotations

import re
import typing
from pathlib import Path
from typing import Any

from keepworth.cli.command import first_sentence
from tests.cli.test_command import commands

DOCS = Path(__file__).parents[2] / "docs"
PAGE, REFERENCE = DOCS / "command_line.md", DOCS / "commands.md"
WRITE = "the commands have changed: run python -m tests.cli.test_command_page"
HEAD = """# Every command

What each command takes, as its `--help` says it. [The command line](command_line.md) says which one does what, and which options
all share. This page is made of the commands: `make docs` writes it.
"""


def ends() -> list[tuple[str, Any]]:
    """The commands that do something, and are no groups of others."""
    return [(" ".join(words), command) for words, command in commands() if not hasattr(command, "commands")]


def table() -> str:
    """The table of `command_line.md`."""
    rows = ["| `keepworth ...` | what it does |", "| --- | --- |"]
    for words, command in ends():
        anchor = f"keepworth-{words.replace(' ', '-')}"
        rows.append(f"| [`{words}`](commands.md#{anchor}) | {first_sentence(command.help or '')} |")
    return "\n".join(rows)


def reference() -> str:
    """The page `commands.md`."""
    return "\n".join((HEAD, *(section(words, command) for words, command in ends())))


def section(words: str, command: Any) -> str:
    """A command's usage, documentation, arguments, options and examples."""
    context = command.make_context(words, [], resilient_parsing=True)
    usage = " ".join(("keepworth", words, *command.collect_usage_pieces(context)))
    paragraphs = [" ".join(paragraph.split()) for paragraph in (command.help or "").split("\n\n")]
    lines = [f"## keepworth {words}", "", f"`{usage}`", "", *(f"{paragraph}\n" for paragraph in paragraphs)]
    records = [record for option in command.params if (record := option.get_help_record(context)) is not None]
    if records:
        lines += ["| takes | meaning |", "| --- | --- |"]
        for term, meaning in records:
            cells = (f"`{re.sub(' <.*>$', '', term)}`", meaning.replace("  [", " ["))
            lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
        lines.append("")
    lines += ["```text", *command.epilog.splitlines(), "```", ""] if command.epilog else []
    return "\n".join(lines)


def test_the_pages_list_the_commands() -> None:
    listed = re.search(r"<!-- commands -->\n(.*?)\n?<!-- /commands -->", PAGE.read_text(encoding="utf-8"), re.S)
    assert listed is not None
    assert listed[1] == table(), WRITE
    assert REFERENCE.read_text(encoding="utf-8") == reference(), WRITE


def test_options_that_commands_share_mean_the_same_everywhere() -> None:
    """One name for one thing: a flag is never a file elsewhere, and shared options have the same short form and default."""
    shapes: dict[str, set[typing.Any]] = {}
    for _, command in commands():
        for option in command.params:
            for name in ("--json", "--out", "--user", "--top-k", "--limit", "--runs", "--file", "--yes", "--debug"):
                if name in option.opts:
                    default = option.default if name in ("--top-k", "--runs", "--file") else None
                    short = tuple(opt for opt in option.opts if not opt.startswith("--"))
                    shapes.setdefault(name, set()).add((bool(option.is_flag), short, default))
    assert {name: len(found) for name, found in shapes.items()} == dict.fromkeys(shapes, 1)
    flags = {name for name, found in shapes.items() if next(iter(found))[0]}
    assert flags == {"--json", "--yes", "--debug"} & set(shapes)
    assert "--run" not in {name for _, command in commands() for option in command.params for name in option.opts}


NO_JSON = {
    "demo": "it trains, and leaves a run: show --json",
    "train": "the same",
    "serve": "it answers until it is stopped",
    "hook": "its host says the format",
    "models fetch": "it downloads, and models list --json says what is there",
}


def test_every_command_with_a_result_prints_it_as_json() -> None:
    ends = {" ".join(words): command for words, command in commands() if not hasattr(command, "commands")}
    assert {words for words, end in ends.items() if not any("--json" in each.opts for each in end.params)} == set(
        NO_JSON
    )


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    new = f"<!-- commands -->\n{table()}\n<!-- /commands -->"
    PAGE.write_text(re.sub(r"<!-- commands -->.*<!-- /commands -->", lambda _: new, text, flags=re.S), encoding="utf-8")
    REFERENCE.write_text(reference(), encoding="utf-8")
