"""An encoder from its name."""

from __future__ import annotations

from pathlib import Path

from keepworth.episodes.encoder import Encoder
from keepworth.models.errors import InvalidEncoder
from keepworth.models.files import Progress, path_of
from keepworth.models.hashing import HashingEncoder
from keepworth.models.known import DEFAULT_ENCODER, KNOWN, ModelKind

_ALIASES = {"minilm": DEFAULT_ENCODER}


def encoder(name: str = "minilm", *, threads: int = 1, progress: Progress | None = None) -> Encoder:
    """`minilm` (all-MiniLM-L6-v2, fetched once), `hashing`, `hashing:DIMENSION`, a folder or a Hugging Face id of a BERT encoder.

    threads: for the neural encoders. Raises InvalidEncoder for a dimension that is none, and what `files.path_of` raises.
    """
    if name == "hashing":
        return HashingEncoder()
    if name.startswith("hashing:"):
        dimension = name.removeprefix("hashing:")
        if not dimension.isdecimal():
            raise InvalidEncoder(
                f"The encoder {name!r:.80} has no number of dimensions after `hashing:`.",
                "Write, for example, hashing:512.",
            )
        return HashingEncoder(int(dimension))
    from keepworth.models.sentence_encoder import open_sentence_encoder

    model = _ALIASES.get(name, name)
    folder = Path(model).expanduser()
    if model in KNOWN or not folder.is_dir():
        folder = path_of(model, progress, kind=ModelKind.ENCODER)
    return open_sentence_encoder(folder, model if model in KNOWN else _own_name(folder), threads=threads)


def _own_name(folder: Path) -> str:
    """A name that changes with the weights, so that vectors of two encoders in folders of one name are never compared."""
    from keepworth.models.onnx_export import GRAPH
    from keepworth.models.wheel import sha256_of

    weights = next((folder / file for file in ("model.safetensors", GRAPH) if (folder / file).is_file()), None)
    return f"{folder.resolve().name}@{sha256_of(weights)[:12]}" if weights else folder.name
