"""Text of people and of models is data: these functions keep it plain text in a prompt and on a terminal.

Every prompt of this package passes such text through `as_line`: one item is one line, whatever it holds, and nothing in it is a
special token of a chat template. All data that is printed passes through `printable`."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

CONTROLS = dict.fromkeys((*range(32), *range(127, 160)), " ")
"""Control characters, as spaces."""
# Characters without width that hide text from people or turn its direction round. Joiners that scripts and emoji need stay.
_UNSEEN = dict.fromkeys(
    (
        *(0x00AD, 0x061C, 0x180E, 0x200B, 0x200E, 0x200F, 0xFEFF),
        *(*range(0x202A, 0x202F), *range(0x2060, 0x2070), *range(0xFFF9, 0xFFFC), *range(0xE0000, 0xE0080)),
    )
)
_IN_LINE = str.maketrans({**CONTROLS, **_UNSEEN})
_IN_TEXT = str.maketrans({**{code: " " for code in CONTROLS if chr(code) not in "\n\t"}, **_UNSEEN})
_LONE = re.compile("[\ud800-\udfff]")
# `<|im_start|>` and `<turn|>`; `<s>`, `</s>` and `<end_of_turn>`; `[INST]` and `[/INST]`; full-width forms too.
_TOKENS = (
    (re.compile(r"([<＜])(?=[|｜])|(?<=[|｜])(?=[>＞])"), r"\1 "),
    (re.compile(r"([<＜])(?=[\w.▁/-]+[>＞])"), r"\1 "),
    (re.compile(r"(\[)(?=/?[A-Z][A-Z0-9_]+\])"), r"\1 "),
)


def unquoted(words: str) -> str:
    """Returns a prompt without the quotes that opencode writes around one that is given on its command line."""
    return words[1:-1].strip() if len(words) > 1 and words[0] == words[-1] == '"' and words.count('"') == 2 else words


def as_line(text: str, separators: str = "") -> str:
    """Returns `text` on one line, without control characters, and with the tokens of chat templates split by a space.
    `separators` are characters that separate items where the text is shown; each is replaced by a slash."""
    if separators:
        text = text.translate(dict.fromkeys(map(ord, separators), "/"))
    plain = text if text.isascii() and text.isprintable() else _LONE.sub("\ufffd", text.translate(_IN_LINE))
    return _apart(" ".join(plain.split()))


def as_text(text: str) -> str:
    """Cleans like `as_line` but keeps line breaks and tabs, for text that is a whole message."""
    return _apart(_LONE.sub("\ufffd", text.translate(_IN_TEXT)))


def _apart(text: str) -> str:
    if any(mark in text for mark in "<＜|｜["):
        for shape, parted in _TOKENS:
            text = shape.sub(parted, text)
    return text


# Terminal: printing text of people and of models as plain text.
#
# A terminal obeys what it prints: an episode, a file name or an error message may hold sequences that set its title, clear it,
# move its cursor, send input as if the user had typed it, or reverse the direction of a line. All data that is printed
# passes through `printable`; consoles are made by `terminal`, and lines by `keepworth.cli.output`.


# Each character is replaced by one character, so that styles and layout keep their places. Line breaks stay.
_OBEYED = dict.fromkeys((*range(32), *range(127, 160), 0x2028, 0x2029), " ") | {ord("\n"): "\n"}
_TURNING = dict.fromkeys((0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)), " ")
_MAP = str.maketrans({**_OBEYED, **_TURNING})
_NOT_PLAIN = re.compile(f"[{re.escape(''.join(map(chr, {*_OBEYED, *_TURNING} - {10})))}]")


def printable(text: str) -> str:
    """Returns `text` with the same length, without control sequences of terminals; line breaks stay."""
    return _LONE.sub("\ufffd", text.translate(_MAP))


def one_line(text: str) -> str:
    """Returns `printable` text without line breaks, where a second line could be mistaken for one of the program's."""
    return printable(text).replace("\n", " ")


def with_ends(text: str) -> str:
    """Returns the text with a sign for each line break at its ends, which nobody could see otherwise."""
    words = text.strip("\n")
    if not words:
        return "⏎" * len(text)
    before, _, behind = text.partition(words)
    return f"{'⏎' * len(before)}{words}{'⏎' * len(behind)}"


def entry(head: str, text: str, width: int = 80, lines: int = 3) -> str:
    """Returns an entry of a list for people: `head`, and `text` next to it, over a few lines at most.

    Args:
        head: What stands to the left of the text, in its first line.
        text: What is wrapped; its line breaks become blanks.
        width: The columns of a line, those of `head` included.
        lines: The most lines of the entry. A longer text ends with " ...".
    """
    import textwrap

    indent = " " * (len(one_line(head)) + 2)
    wrapped = textwrap.wrap(
        one_line(text), width, initial_indent=indent, subsequent_indent=indent, max_lines=lines, placeholder=" ..."
    )
    return f"{one_line(head)}  {chr(10).join(wrapped).lstrip()}".rstrip()


def json_line(record: Any, **settings: Any) -> str:
    """Returns the JSON of `record`, with characters escaped that a terminal would interpret."""
    text = json.dumps(record, ensure_ascii=False, **settings)
    return _LONE.sub(_escaped, _NOT_PLAIN.sub(_escaped, text))


def _escaped(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def terminal(**settings: Any) -> Console:
    """Makes a rich console that prints strings as they are, without markup or control sequences. `settings` are those of rich."""
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


def in_words(names: Sequence[str]) -> str:
    """Lists names in a sentence: `a`, `a and b`, or `a, b and c`."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalise(text: str) -> str:
    """Returns `text` in lower case, without ASCII punctuation and the words a, an and the, and with white space collapsed.

    Idempotent except for words that deleting punctuation creates. Other scripts' punctuation (curly quotes, dashes) stays, as in
    SQuAD."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def tokens(text: str) -> list[str]:
    """Returns the white-space tokens of the normalised text."""
    return normalise(text).split()
