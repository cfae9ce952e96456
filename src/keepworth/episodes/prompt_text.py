"""Prompt text: how text of people and of models enters a prompt, so that it stays data.

Every prompt of this package puts such text through `as_line`: one item is one line, whatever it holds, and nothing in it is a
token that a chat template gives a meaning to. Ordinary text comes out as it is, but for runs of white space.
"""

from __future__ import annotations

import re

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


def as_line(text: str, separators: str = "") -> str:
    """`text` on one line, without control characters and without the tokens of chat templates, which a space takes apart.

    separators: characters that part items in the place where it is shown; a slash takes the place of each."""
    if separators:
        text = text.translate(dict.fromkeys(map(ord, separators), "/"))
    plain = text if text.isascii() and text.isprintable() else _LONE.sub("\ufffd", text.translate(_IN_LINE))
    return _apart(" ".join(plain.split()))


def as_text(text: str) -> str:
    """The same with line breaks and tabs kept, for text that is the whole of its message."""
    return _apart(_LONE.sub("\ufffd", text.translate(_IN_TEXT)))


def _apart(text: str) -> str:
    if any(mark in text for mark in "<＜|｜["):
        for shape, parted in _TOKENS:
            text = shape.sub(parted, text)
    return text
