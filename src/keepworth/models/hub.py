"""Checkpoints that are not in the catalogue: local folders and the Hugging Face Hub."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable
from pathlib import Path

from keepworth.models.errors import IncompleteModel, UnknownModel, UnreachableModel
from keepworth.models.known import KNOWN, availability, nearest

_LOG = logging.getLogger("keepworth.models")
_HUB_ID = re.compile(r"([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@([\w.-]+))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
# No pickles: loading one runs its code.
_HUB_FILES = ["*.safetensors", "*.safetensors.index.json", "*.json", "*.jinja", "*.model", "*.txt"]
_PARTS = {
    "config.json": ("config.json",),
    "weights (*.safetensors)": ("*.safetensors",),
    "a tokenizer (tokenizer.json, tokenizer.model or vocab.*)": ("tokenizer.json", "tokenizer.model", "vocab.*"),
}


def complete_folder(folder: Path) -> Path:
    """`folder`, if it has a configuration, all its weights and a tokenizer. Raises IncompleteModel naming what is missing."""
    missing = [part for part, patterns in _PARTS.items() if not any(any(folder.glob(each)) for each in patterns)]
    if missing:
        raise IncompleteModel(f"{folder} is no checkpoint folder: it lacks {', '.join(missing)}.")
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        except (ValueError, KeyError, TypeError, AttributeError):
            raise IncompleteModel(f"{index} cannot be read as the index of a sharded checkpoint.") from None
        if absent := sorted(shard for shard in shards if not (folder / shard).is_file()):
            raise IncompleteModel(f"{folder} lacks the shards {', '.join(absent)} that its index names.")
    return folder


def is_hub_id(name: str) -> bool:
    """`owner/name`, or `owner/name@revision`."""
    return _HUB_ID.fullmatch(name) is not None


def hub_parts(name: str) -> tuple[str, str | None]:
    """(owner/name, revision)."""
    found = _HUB_ID.fullmatch(name)
    assert found is not None
    return found[1], found[2]


def from_hub(model: str, progress: Callable[[str], None] | None = None) -> Path:
    """The local snapshot of a Hugging Face id, downloaded where the Hub's own cache lacks it.

    `owner/name@commit` is the same files for ever. Without a commit it is what the owner last put there: a warning says so, and
    which commit it was.

    Raises UnreachableModel where the Hub does not answer, HF_HUB_OFFLINE forbids asking or the model is gated; UnknownModel where
    the Hub has no such model; IncompleteModel where it has no safetensors weights.
    """
    import httpx
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    if progress:
        progress(f"asking the Hugging Face Hub for {model}")
    repository, revision = hub_parts(model)
    same = next((each.name for each in KNOWN.values() if each.origin.lower() == repository.lower()), None)
    near = nearest(model)
    instead = f" {same!r} holds the same model." if same else f" The nearest is {near!r}." if near else ""
    try:
        snapshot = Path(snapshot_download(repository, revision=revision, allow_patterns=_HUB_FILES))
    except GatedRepoError as error:
        raise UnreachableModel(
            f"{model} is gated on the Hugging Face Hub.", "Accept its terms, then `hf auth login`."
        ) from error
    except (RepositoryNotFoundError, RevisionNotFoundError, HFValidationError) as error:
        raise UnknownModel(
            f"The Hugging Face Hub has no {model!r}, or it is private.", availability() + instead
        ) from error
    except (LocalEntryNotFoundError, HfHubHTTPError, httpx.HTTPError, OSError) as error:
        offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}
        why = "HF_HUB_OFFLINE is set and the Hub's local cache lacks it" if offline else "the Hub cannot be reached"
        raise UnreachableModel(
            f"{model!r} is no folder here, and it could not be fetched from the Hugging Face Hub: {why}.",
            availability() + instead,
        ) from error
    folder = complete_folder(snapshot)
    if revision is None or not _COMMIT.fullmatch(revision):
        _LOG.warning(
            "%s is whatever its owner last put there, today %s. To get the same files again, name %s@%s.",
            model,
            snapshot.name,
            repository,
            snapshot.name,
        )
    return folder
