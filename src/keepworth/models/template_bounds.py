"""Bounds of chat templates. A template is a program that came with a model: it may loop for ever, or make a text that no memory
holds. `transformers` renders it in jinja's sandbox, which keeps it from files and code, but not from that."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from types import FrameType
from typing import Any

LONGEST_TEXT = 16 * 2**20
"""Most characters that a template may make of something shorter."""
SECONDS = 5.0
"""Seconds that one rendering may take."""


class Unbounded(Exception):
    """A template takes too long, or makes something too large."""


@contextmanager
def bounded_time() -> Iterator[None]:
    """Raises Unbounded inside the block once code of a template has run for so long. Under a debugger there is no bound."""
    if sys.gettrace() is not None:
        yield
        return
    ends = time.monotonic() + SECONDS

    def in_template(frame: FrameType, event: str, argument: Any) -> Any:
        if time.monotonic() > ends:
            raise Unbounded(f"it takes longer than {SECONDS:g} s")
        return in_template

    def begin(frame: FrameType, event: str, argument: Any) -> Any:
        return in_template if frame.f_code.co_filename == "<template>" else None

    sys.settrace(begin)
    try:
        yield
    finally:
        sys.settrace(None)


@lru_cache(maxsize=64)
def require_bounded(template: str) -> None:
    """Raises Unbounded for a template that multiplies texts or powers without a bound, as far as usual conversations make it do
    so. It has to be asked before the template is compiled anywhere else, because compiling computes what is constant."""
    try:
        from transformers.utils import chat_template_utils
    except ImportError:  # then a template is rendered by whoever brings the tokenizer
        return
    compiled = getattr(chat_template_utils, "_compile_jinja_template", None)
    if compiled is None:
        return
    environment = compiled("").environment.overlay()
    environment.__class__ = _bound(type(environment))
    for messages in _CONVERSATIONS:
        try:
            with bounded_time():
                environment.from_string(template).render(messages=messages, tools=None, add_generation_prompt=True)
        except Unbounded:
            raise
        except Exception:  # what it does not take is said where a real conversation is rendered
            continue


_CONVERSATIONS: Sequence[Sequence[Mapping[str, str]]] = (
    ({"role": "user", "content": "a"},),
    ({"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}),
    ({"role": "system", "content": "a"}, {"role": "user", "content": "b"}),
)


def _bound(kind: Any) -> type[Any]:
    """Returns a subclass of a sandboxed environment that looks at every product, power and sum before it is computed."""

    def call_binop(self: Any, context: Any, operator: str, left: Any, right: Any) -> Any:
        size = 0
        if operator == "**" and isinstance(left, int) and isinstance(right, int):
            size = abs(right) * abs(left).bit_length()
        elif operator in "*+":
            for value, other in ((left, right), (right, left)):
                if hasattr(value, "__len__"):
                    size = len(value) * other if isinstance(other, int) else len(value) + len(other or "")
        if size > LONGEST_TEXT:
            raise Unbounded(f"it computes {operator!r} with a result of {size:,} parts")
        return kind.call_binop(self, context, operator, left, right)

    return type("Bounded", (kind,), {"intercepted_binops": frozenset({"*", "**", "+"}), "call_binop": call_binop})
