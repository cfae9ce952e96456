"""A-MEM (arXiv 2502.12110): notes with keywords, tags and a context sentence, by rules or by a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from keepworth.episodes.text import as_line
from keepworth.memory.item import ItemKind
from keepworth.memory.policy.pool import Advice
from keepworth.memory.policy.slots import Finished, Writer
from keepworth.methods.writers._episodes import AskModel, ended, judged, keywords, parsed
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
            words = keywords(use.query.text)
            context = f"{use.taken} {'worked' if good else 'failed'}"
            drafts.append(
                Advice(
                    note_key(use.query.text, tuple(words), (use.taken,), context),
                    f"{use.query.text} -> {use.taken}: {ended(use, good)}",
                    do=(use.taken,) if good else (),
                    avoid=() if good else (use.taken,),
                    good=good,
                    kind=ItemKind.EPISODE,
                    extra={
                        "content": use.query.text,
                        "keywords": tuple(words),
                        "tags": (use.taken,),
                        "context": context,
                        "links": (),
                    },
                )
            )
        return drafts


def note_key(content: str, keywords: tuple[str, ...], tags: tuple[str, ...], context: str) -> str:
    return " ".join([content, *keywords, *tags, context])


def note_prompt(text: str) -> str:
    """Returns the prompt of A-MEM's note construction (arXiv 2502.12110)."""
    return (
        f"Text:\n{as_line(text)}\n\nDescribe it for later retrieval. Answer with JSON: "
        '{"keywords": [at least three], "context": one sentence, "tags": [at least three]}.'
    )


def parse_note(reply: str) -> dict[str, Any]:
    """Returns the fields of a note; none where the reply is no note, so that the plain text is stored."""
    value = parsed(reply)
    if not isinstance(value, dict):
        return {}
    lists = {name: value.get(name) for name in ("keywords", "tags")}
    if not all(isinstance(row, list) for row in lists.values()) or not isinstance(value.get("context"), str):
        return {}
    return {
        "context": value["context"],
        **{name: tuple(str(word) for word in words) for name, words in lists.items() if isinstance(words, list)},
    }


@dataclass(frozen=True, slots=True)
class NotesByModel:
    """Writes A-MEM's notes with a model; a reply that is no note leaves the plain text."""

    ask: AskModel

    def __call__(self, finished: Finished) -> list[Advice]:
        drafts = []
        for use, good in judged(finished, steps=False):
            text = f"{use.query.text} -> {use.taken}: {ended(use, good)}"
            note = parse_note(self.ask(note_prompt(text)))
            key = " ".join([use.query.text, *note.get("keywords", ()), *note.get("tags", ()), note.get("context", "")])
            drafts.append(
                Advice(
                    key.strip(),
                    text,
                    do=(use.taken,) if good else (),
                    avoid=() if good else (use.taken,),
                    good=good,
                    extra={
                        "content": use.query.text,
                        "keywords": note.get("keywords", ()),
                        "tags": note.get("tags", ()),
                        "context": note.get("context", ""),
                        "links": (),
                    },
                )
            )
        return drafts


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
