"""The page on the command line lists the commands that there are, with what their help says."""

from __future__ import annotations

import re
import typing
from pathlib import Path

from keepworth.cli.command import first_sentence
from tests.cli.test_command import commands

PAGE = Path(__file__).parents[2] / "docs" / "command_line.md"


def table() -> str:
    """The table as it has to be: `python -m tests.cli.test_command_page` writes it."""
    rows = ["| `keepworth ...` | what it does |", "| --- | --- |"]
    for words, command in commands():
        if not hasattr(command, "commands"):
            rows.append(f"| `{' '.join(words)}` | {first_sentence(command.help or '')} |")
    return "\n".join(rows)


def test_the_page_lists_the_commands() -> None:
    found = re.search(r"<!-- commands -->\n(.*?)\n?<!-- /commands -->", PAGE.read_text(encoding="utf-8"), re.S)
    assert found is not None
    assert found[1] == table()


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
