"""What a memory is given where nothing else is said: encoders and policies by name. The one place that knows all rooms.

`Memory` asks for them when it is opened, so the room of memory itself imports no model and no recipe.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keepworth.episodes.model import Encoder, EncoderIdentity
    from keepworth.memory.policy.slots import Policy


def encoder(name: str, on_file: EncoderIdentity | None = None) -> Encoder:
    """The encoder called `name`, or, where `on_file` is given, the one that made the vectors of a memory."""
    from keepworth.models.encoders import encoder

    if on_file is not None:
        if on_file.model.startswith("hashing"):
            return encoder(f"hashing:{on_file.dimension}")
        return encoder(on_file.model)
    return encoder("minilm" if name == "default" else name)


def policy(name: str = "effect", *, also: Iterable[str] = (), **settings: Any) -> Policy:
    """A fresh policy by name, with settings of its own: `policy("effect", withhold=0.05)`. also: other names that are known.
    Raises UnknownName, InvalidPolicy."""
    from keepworth.memory.policy.effect import NAME, effect

    if name == NAME:
        return effect(**settings)
    from keepworth.episodes.errors import UnknownName
    from keepworth.recipes.experience_methods import METHODS

    if name not in METHODS:
        raise UnknownName("policy", name, [NAME, *METHODS, *also])
    return METHODS[name](**settings)
