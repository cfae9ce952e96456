"""A-MEM (arXiv 2502.12110): notes with keywords, tags and a context sentence, by rules or by a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from keepworth.base.text import as_line
from keepworth.memory.choose.case_writers import AskModel, advised, case_text, judged, keywords, parsed
from keepworth.memory.choose.pool import Advice
from keepworth.memory.choose.slots import Finished, Use, Writer
from keepworth.memory.item import ItemKind
from keepworth.registry import Method


@dataclass(frozen=True, slots=True)
class Notes:
    """Writes A-MEM's notes by rules: content, keywords, tags and a context sentence, all of them embedded (2502.12110)."""

    failures: bool = True
    steps: bool = False

    def __call__(self, finished: Finished) -> list[Advice]:
        drafts = []
        for use, good in judged(finished, self.steps):
            if not good and not self.failures:
                continue
            words, context = tuple(keywords(use.query.text)), f"{use.taken} {'worked' if good else 'failed'}"
            drafts.append(_note(use, good, words, (use.taken,), context, kind=ItemKind.EPISODE))
        return drafts


def _note(use: Use, good: bool, keywords: tuple[str, ...], tags: tuple[str, ...], context: str, **rest: Any) -> Advice:
    content = use.query.text
    extra = {"content": content, "keywords": keywords, "tags": tags, "context": context, "links": ()}
    key = note_key(content, keywords, tags, context)
    return advised(use.taken, good, key, case_text(use, good), extra=extra, **rest)


def note_key(content: str, keywords: tuple[str, ...], tags: tuple[str, ...], context: str) -> str:
    """Returns the text whose vector is a note's key.

    Args:
        content: What the note says.
        keywords, tags: Those of the note.
        context: The sentence about it.
    """
    return " ".join([content, *keywords, *tags, context]).strip()


def note_prompt(text: str) -> str:
    """Returns the prompt of A-MEM's note construction (arXiv 2502.12110)."""
    return (
        f"Text:\n{as_line(text)}\n\nDescribe it for later retrieval. Answer with JSON: "
        '{"keywords": [at least three], "context": one sentence, "tags": [at least three]}.'
    )


def parse_note(reply: str) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """Returns keywords, tags and context of a note; empty where the reply is no note, so that the plain text is stored."""
    value = parsed(reply)
    keywords, tags, context = map(value.get, ("keywords", "tags", "context")) if isinstance(value, dict) else ("",) * 3
    if not isinstance(keywords, list) or not isinstance(tags, list) or not isinstance(context, str):
        return (), (), ""
    return tuple(map(str, keywords)), tuple(map(str, tags)), context


@dataclass(frozen=True, slots=True)
class NotesByModel:
    """Writes A-MEM's notes with a model; a reply that is no note leaves the plain text."""

    ask: AskModel

    def __call__(self, finished: Finished) -> list[Advice]:
        return [
            _note(use, good, *parse_note(self.ask(note_prompt(case_text(use, good)))))
            for use, good in judged(finished, steps=False)
        ]


def notes(*, ask: AskModel | None = None, failures: bool = True, steps: bool = False) -> Writer:
    """Returns a writer of one note for each choice of an episode.

    Args:
        ask: A chat model as a function; None uses rules.
        failures: Whether failed choices are kept, too. A model keeps them anyway.
        steps: Whether each step counts by its own reward. With a model the last choice in each situation counts.
    """
    return Notes(failures, steps) if ask is None else NotesByModel(ask)


METHOD = Method(
    kind="writer",
    name="notes",
    title="A-MEM notes",
    paper="arXiv 2502.12110",
    about="Writes a note for each choice, with keywords, tags and a sentence of context",
    tags=("token", "experiential", "formation"),
    differs="Rules write where no model is given, and the prompts are ours.",
    make=notes,
)
