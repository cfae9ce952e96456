"""Facts of messages: by the rules of the memory itself, or by a chat model."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from keepworth.memory.policy.writers import Facts
from keepworth.registry import Method

if TYPE_CHECKING:
    from keepworth.models.chat import ChatModel


def model(*, chat: ChatModel | None = None, instructions: str = "") -> Facts:
    """The writer that asks a chat model for the facts of messages, and for what they take the place of.

    Args:
        chat: The model; None for OPENAI_MODEL behind OPENAI_BASE_URL.
        instructions: What the model is told to keep, beside the usual.

    Raises:
        ChatError: OPENAI_MODEL is not set.
    """
    from keepworth.models.chat import comparison, extractor, from_environment
    from keepworth.models.errors import ChatError

    if chat is None:
        name = os.environ.get("OPENAI_MODEL", "")
        if not name:
            raise ChatError(
                'writer="model" needs a chat model, and OPENAI_MODEL is not set.', "Set it to the model's name."
            )
        chat = from_environment(name, 'Memory(writer="model")')
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
