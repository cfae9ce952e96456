"""`keepworth doctor`: what works on this machine, and what to install for the rest."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from keepworth.base.extras import EXTRAS, fix_for, missing
from keepworth.cli.command import option
from keepworth.cli.output import say_json
from keepworth.models.threads import available_cores

MARKS = {"good": ("✓", "green"), "missing": ("○", "yellow"), "bad": ("✗", "red")}
PACKAGES = ("numpy", "apsw", "onnxruntime", "tokenizers", "safetensors", "pydantic")


class Finding(NamedTuple):
    """A finding. `verdict` is good; missing, where an optional part is unavailable; or bad, where an installed part does not
    work."""

    subject: str
    verdict: str
    message: str
    fix: str = ""


def doctor(
    all_: Annotated[bool, option("--all", "A line for each extra, with what it is for.")] = False,
    as_json: Annotated[bool, option("--json", "Print all findings as JSON.")] = False,
) -> None:
    """Say what works on this machine and what to install for the rest. Exits with 1 where something is broken."""
    from rich.text import Text

    from keepworth.base.text import terminal

    checks = [*_packages(), *_models(), *_machine(), *_torch(), *(_extras() if all_ or as_json else _extras_in_short())]
    if as_json:
        say_json([finding._asdict() for finding in checks], indent=2)
    else:
        console = terminal(soft_wrap=True)
        for subject, verdict, message, fix in checks:
            console.print(Text.assemble(" ", MARKS[verdict], (f" {subject:<13} ", "bold"), message))
            if fix:
                console.print(Text.assemble(f"   {'':<13} ", (fix, "cyan")))
    if any(finding.verdict == "bad" for finding in checks):
        raise typer.Exit(1)


def _packages() -> Iterator[Finding]:
    from importlib.metadata import PackageNotFoundError, version

    yield Finding("python", "good", f"{platform.python_version()} on {platform.platform()}")
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            yield Finding("packages", "bad", f"missing: {package}", f"pip install {package}")
    yield Finding("packages", "good", ", ".join(f"{package} {number}" for package, number in versions.items()))


def _models() -> Iterator[Finding]:
    from keepworth.base.model_files import MADE, State, list_models

    for status in list_models():
        name = status.model.name
        if status.state is State.READY:
            yield Finding("model", "good", f"{name} in {status.path}")
        elif status.state is State.CORRUPT:
            yield Finding("model", "bad", f"{name}: {status.detail}", f"{status.model.command} --force")
        elif name not in MADE:  # one of the laboratory is needed by nothing else
            fix = f"fetched when first needed, or now: {status.model.command}"
            yield Finding("model", "missing", f"{name}: {status.detail}", fix)


def _machine() -> Iterator[Finding]:
    yield Finding("cores", "good", str(available_cores()))
    try:
        free = shutil.disk_usage(Path.cwd()).free / 2**30
    except FileNotFoundError:
        yield Finding("disk", "bad", "the folder in which this runs is gone", "cd to another one")
        return
    fix = "" if free >= 2 else "the demo and the model files take about 2 GiB"
    yield Finding("disk", "missing" if fix else "good", f"{free:.1f} GiB free in {Path.cwd()}", fix)


def _torch() -> Iterator[Finding]:
    try:
        import torch
    except ModuleNotFoundError:
        yield Finding("torch", "missing", "not installed: language models and training are left out", fix_for("train"))
    except ImportError as error:
        yield Finding("torch", "bad", f"cannot be imported: {error}", fix_for("train"))
    else:
        count = torch.cuda.device_count()
        devices = (
            ", ".join(map(torch.cuda.get_device_name, range(count))) or "processor only (enough for everything here)"
        )
        yield Finding("torch", "good", f"{torch.__version__}, {devices}")


def _extras() -> Iterator[Finding]:
    for name, extra in EXTRAS.items():
        absent = missing(name)
        parts = missing(name, *extra.part) if extra.part else []
        some = [*(absent if len(absent) < len(extra.modules) else []), *parts]
        more = f" ({', '.join(some)} is not there)" if some else ""
        fix = fix_for(name) if absent or parts else ""
        yield Finding("extra", "missing" if absent else "good", f"{name}: {extra.purpose}{more}", fix)


def _describe_extra(name: str) -> str:
    """Returns an extra's name, with the packages that a part of it lacks."""
    part = EXTRAS[name].part
    lacks = missing(name, *part) if part and not missing(name) else []
    return f"{name} (without {', '.join(lacks)})" if lacks else name


def _extras_in_short() -> Iterator[Finding]:
    here, absent = (
        ", ".join(map(_describe_extra, (n for n in EXTRAS if bool(missing(n)) is lacks))) for lacks in (False, True)
    )
    summary = f"here: {here or 'none'}; not installed: {absent or 'none'}"
    yield Finding("extras", "good", summary, "keepworth doctor --all says what each is for, and how to install it")
