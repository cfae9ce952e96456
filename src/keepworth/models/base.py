"""Base: which published weights a training began from, in words that mean something on another machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from keepworth.models.hub import hub_parts, is_hub_id
from keepworth.models.known import KNOWN
from keepworth.models.wheel import sha256_of

RECORD = "base.json"


def repository_of(name: str, folder: Path | None) -> str:
    """The Hugging Face id that others know the model by; its folder where it has none."""
    if name in KNOWN:
        return KNOWN[name].origin
    if is_hub_id(name) and not Path(name).is_dir():
        return hub_parts(name)[0]
    return str(folder.absolute()) if folder is not None else name


def record_of(name: str, folder: Path | None) -> dict[str, Any]:
    """repository: see `repository_of`. revision: the commit of it, where it came from the Hub. note: where these are not the
    repository's own weights. files: the sha256 of each file of weights that was loaded."""
    record: dict[str, Any] = {"repository": repository_of(name, folder)}
    if name in KNOWN:
        model = KNOWN[name]
        source = model.files[0]
        record["note"] = (
            f"Not the repository's own weights: de-quantised from {source.name} of the Python package "
            f"{model.requirement} (sha256 {source.sha256}) by `keepworth models fetch {name}`. What was trained on them "
            "fits the repository's weights nearly, not exactly."
        )
    if folder is not None and is_hub_id(name) and folder.parent.name == "snapshots":
        record["revision"] = folder.name
    if folder is not None:
        record["files"] = {path.name: sha256_of(path) for path in sorted(folder.glob("*.safetensors"))}
    return record
