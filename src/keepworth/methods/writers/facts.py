"""Facts of messages: by the rules of the memory itself, or by a chat model."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from keepworth.base.model_errors import ChatError
from keepworth.base.text import as_line, tokens
from keepworth.methods.writers._fact_writer import Facts as Facts
from keepworth.registry import Method

if TYPE_CHECKING:
    from keepworth.base.chat import ChatModel, Message


_EXTRACT = """Read the conversation and list what is worth remembering about the people in it: stable facts, plans, preferences, \
events. Each fact is one short sentence that can be understood alone: names instead of pronouns ("the user" where there is no \
name), dates instead of "yesterday".{said} Leave out small talk, what was only asked, and all that the assistant says but for \
facts that it states itself, such as a booking it made. Answer with JSON: {{"facts": ["...", "..."]}}; {{"facts": []}} where \
there is nothing."""

_COMPARE = """Notes on a person, and new facts. Which notes does each fact make untrue, because it tells of a change, a \
correction, or another value of what has only one? A note that says the same, or something else, stays true.

{listed}

Answer with JSON: for each fact the numbers of such notes, {{"F0": [], "F1": [2]}}."""


def extractor(chat: ChatModel, instructions: str = "") -> Callable[[Sequence[Message]], list[str]]:
    """Returns a function that turns messages into facts, by one call each; for `Memory(writer=Facts(extractor(chat),
    comparison(chat)))`. said_at in a message is when it was said. instructions: added to the prompt, such as what to leave out. A
    fact that shares no word with the messages is dropped. Raises ChatError where the answer is no list of facts, or all of them
    are dropped."""

    def extract(messages: Sequence[Message]) -> list[str]:
        words = [(message.get("role", "user"), message.get("content")) for message in messages]
        shown = "\n".join(f"{role}: {text}" for role, text in words if text)
        when = next((str(message["said_at"]) for message in messages if message.get("said_at")), "")
        asked = _EXTRACT.format(said=f" It was said on {when[:10]}." if when else "")
        if instructions:
            asked += f"\n\nMore about what to list, which goes before what is said above:\n{instructions}"
        answer = chat.complete_json([{"role": "system", "content": asked}, {"role": "user", "content": shown}])
        facts = answer.get("facts")
        if not isinstance(facts, list) or not all(isinstance(fact, str) for fact in facts):
            raise ChatError(f"{chat.model} did not answer with a list of facts: {json.dumps(answer)[:200]!r}.")
        stated = [fact.strip() for fact in facts if fact.strip()]
        stated_words = set(tokens(shown))
        grounded = [statement for statement in stated if stated_words & set(tokens(statement))]
        if stated and not grounded:
            raise ChatError(f"{chat.model} listed facts that nobody stated: {json.dumps(stated)[:200]!r}.")
        return grounded

    return extract


def comparison(chat: ChatModel) -> Callable[[Sequence[str], Sequence[Sequence[str]]], list[list[int]]]:
    """Returns a function (facts, for each the similar existing items) -> for each the positions of the items it makes untrue; one
    call for all.

    Items that the answer does not name stay. Raises ChatError where the answer is no JSON object.
    """

    def outdated(facts: Sequence[str], earlier: Sequence[Sequence[str]]) -> list[list[int]]:
        notes = list(dict.fromkeys(text for note in earlier for text in note))
        number = {text: index for index, text in enumerate(notes)}
        lines = [f"{index}. {as_line(text)}" for text, index in number.items()]
        lines += [f"F{index}: {as_line(text)}" for index, text in enumerate(facts)]
        answer = chat.complete_json([{"role": "user", "content": _COMPARE.format(listed="\n".join(lines))}])
        outdated_by = []
        for index, texts in enumerate(earlier):
            named = answer.get(f"F{index}")
            numbers = set(named) if isinstance(named, list) and all(isinstance(note, int) for note in named) else set()
            outdated_by.append([row for row, text in enumerate(texts) if number[text] in numbers])
        return outdated_by

    return outdated


def model(*, chat: ChatModel | None = None, instructions: str = "") -> Facts:
    """Returns the writer that asks a chat model for the facts of messages, and for the items that they replace.

    Args:
        chat: The model; None for OPENAI_MODEL behind OPENAI_BASE_URL.
        instructions: Added to the usual prompt, such as what to keep.

    Raises:
        ChatError: OPENAI_MODEL is not set.
    """
    from keepworth.base.chat import from_environment, model_in_environment

    if chat is None:
        chat = from_environment(model_in_environment('writer="model"'), 'Memory(writer="model")')
    return Facts(extractor(chat, instructions), comparison(chat))


METHODS = (
    Method(
        kind="writer",
        name="rules",
        title="Facts by rules",
        about="Extracts statements of the user and of named people by rules; a newer one replaces what it contradicts (ours)",
        tags=("token", "factual", "formation", "evolution"),
        make=Facts,
    ),
    Method(
        kind="writer",
        name="model",
        title="Facts by a chat model",
        about="Asks a chat model which facts messages hold and which older ones they replace",
        tags=("token", "factual", "formation", "evolution"),
        make=model,
    ),
)
