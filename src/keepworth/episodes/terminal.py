"""Terminal: how text of people and of models is printed, so that it stays text.

A terminal obeys what it prints: an episode, a file name or an error message may hold sequences that set its title, clear it,
move its cursor, answer in the user's name, or turn the direction of a line round. Everything that is printed of data goes
through `printable`; consoles are made by `terminal`, and lines by `keepworth.cli.output`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

# One character for one, so that what is styled or laid out stays in its place. Line breaks stay.
_OBEYED = dict.fromkeys((*range(32), *range(127, 160), 0x2028, 0x2029), " ") | {ord("\n"): "\n"}
_TURNING = dict.fromkeys((0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)), " ")
_MAP = str.maketrans({**_OBEYED, **_TURNING})
_LONE = re.compile("[\ud800-\udfff]")
_NOT_PLAIN = re.compile(f"[{re.escape(''.join(map(chr, {*_OBEYED, *_TURNING} - {10})))}]")


def printable(text: str) -> str:
    """`text` of the same length, without anything that a terminal obeys but line breaks."""
    return _LONE.sub("\ufffd", text.translate(_MAP))


def one_line(text: str) -> str:
    """The same without line breaks, for a place where a second line would pass for one of ours."""
    return printable(text).replace("\n", " ")


def json_line(record: Any, **settings: Any) -> str:
    """JSON that says exactly what `record` does, and nothing that a terminal obeys: such characters are escaped in it."""
    text = json.dumps(record, ensure_ascii=False, **settings)
    return _LONE.sub(_escaped, _NOT_PLAIN.sub(_escaped, text))


def _escaped(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def terminal(**settings: Any) -> Console:
    """A rich console that prints strings as they are, without markup, and obeys none of them. settings: those of rich's."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment
    from rich.text import Text

    class Terminal(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            if isinstance(renderable, str):
                renderable = printable(renderable)
            elif isinstance(renderable, Text) and (plain := printable(renderable.plain)) != renderable.plain:
                renderable = renderable.copy()
                renderable.plain = plain
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(printable(segment.text), segment.style)

    return Terminal(**{"markup": False, "emoji": False, "highlight": False, **settings})
