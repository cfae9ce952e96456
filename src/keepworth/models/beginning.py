"""Beginning: the ids that a tokenizer puts before a text, such as a BOS. A model that was trained with them needs them."""

from __future__ import annotations

from typing import Any

from keepworth.episodes.model import Tokens


def beginning(tokenizer: Any) -> Tokens:
    """The special ids before a text, as the tokenizer's own settings have them; nothing for most Qwen and SmolLM ones.

    What it would put behind a text (an EOS) is left out: a prompt goes on."""
    plain = list(tokenizer("a", add_special_tokens=False)["input_ids"])
    whole = list(tokenizer("a", add_special_tokens=True)["input_ids"])
    starts = [i for i in range(len(whole) - len(plain) + 1) if whole[i : i + len(plain)] == plain]
    return tuple(whole[: starts[0]]) if starts else ()


def begun(ids: Tokens, first: Tokens) -> Tokens:
    """`ids` with `first` before them, unless the text spelled it out, as a chat template does."""
    return ids if ids[: len(first)] == first else first + ids
