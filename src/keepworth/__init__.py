"""keepworth: memory that learns from reward, for language-model agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keepworth.episodes.encoder import Encoder, EncoderIdentity
    from keepworth.memory.memory import Memory as Memory

__version__ = "0.1.0"
__all__ = ["Memory", "__version__"]


def __getattr__(name: str) -> Any:
    # `import keepworth` stays instant: the memory room is loaded when Memory is first named.
    if name != "Memory":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from keepworth.memory.memory import Memory

    Memory.encoder_named = staticmethod(_encoder)
    globals()["Memory"] = Memory
    return Memory


def _encoder(name: str, on_file: EncoderIdentity | None) -> Encoder:
    """The encoder called `name`, or, where `on_file` is given, the one that made the vectors of a memory."""
    from keepworth.models.encoders import encoder

    if on_file is not None:
        if on_file.model.startswith("hashing"):
            return encoder(f"hashing:{on_file.dimension}")
        return encoder(on_file.model)
    return encoder("minilm" if name == "default" else name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
