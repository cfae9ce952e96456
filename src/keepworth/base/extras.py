"""Packages that do not come with `pip install keepworth`: the extra that brings each, and the error where one is missing.

A function that needs one calls `require`. A file that imports one at its top first has `from keepworth.base.needs import
needs_llm` (or needs_train ...), which does the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from types import MappingProxyType

from keepworth.base.errors import KeepworthError
from keepworth.base.text import in_words


@dataclass(frozen=True, slots=True)
class Extra:
    """An extra: its `purpose`, as a noun, the import names of its `modules`, and of those that only a `part` of it needs."""

    purpose: str
    modules: tuple[str, ...]
    part: tuple[str, ...] = ()


_LLM = ("torch", "transformers", "gguf", "peft")
_FORMS = ("llguidance",)
_STATISTICS = ("scipy", "statsmodels")
_SERVER = ("starlette", "uvicorn", "mcp")
_CONTROL = ("torch", "gymnasium")
_TELEMETRY = ("opentelemetry.sdk", "opentelemetry.proto", "opentelemetry.exporter.otlp.proto.http")
EXTRAS: Mapping[str, Extra] = MappingProxyType(
    {
        "train": Extra("training, evaluation and reports", (*_LLM, *_STATISTICS), _FORMS),
        "serve": Extra("serving a memory over HTTP, as a gateway or by MCP", _SERVER),
        "control": Extra("small networks with memory in Gymnasium's worlds", _CONTROL, ("popgym", "h5py")),
        "all": Extra(
            "training, serving and control together",
            (*_LLM, *_STATISTICS, *_SERVER, *_CONTROL[1:]),
            (*_FORMS, "popgym", "h5py"),
        ),
        "llm": Extra("a language model in this process", _LLM, _FORMS),
        "eval": Extra("evaluation, where the model that reads is elsewhere or none", _STATISTICS),
        "math": Extra("answers in LaTeX, and a second opinion on numbers", ("math_verify",)),
        "envs": Extra(
            "puzzles of Reasoning Gym, the streams household and science",
            ("reasoning_gym", "textworld_express", "scienceworld"),
        ),
        "telemetry": Extra("spans for OpenTelemetry, and evaluations from it in protobuf", _TELEMETRY),
        "postgres": Extra("a memory on a Postgres server", ("psycopg",)),
        "ray": Extra("workers on several machines", ("ray",)),
        "trl": Extra("TRL's trainer, beside ours", ("trl",)),
        "verifiers": Extra("environments of verifiers", ("verifiers",)),
        "examples": Extra("the example programs, each with the library it is for", ("openai", "anthropic")),
        "browser": Extra("tests of the pages in a browser", ("playwright", "axe_playwright_python")),
        "docs": Extra("the site of the documentation", ("mkdocs", "mkdocstrings")),
        "dev": Extra("tests, linters and type checks", ("pytest",)),
    }
)


class MissingExtra(KeepworthError, ImportError):
    """A package that is not installed by default is missing. The fix says how to install it."""


def require(extra: str, what: str, *modules: str) -> None:
    """Raises MissingExtra unless the modules are installed. It imports none of them.

    Args:
        extra: The extra that the error tells the reader to install.
        what: The part that needs the modules, as a noun that begins the message.
        modules: The import names of what is needed; without any, every module of the extra.
    """
    absent = missing(extra, *modules)
    if absent:
        verb = "is" if len(absent) == 1 else "are"
        raise MissingExtra(f"{what} needs {in_words(absent)}, which {verb} not installed.", fix_for(extra))


def missing(extra: str, *modules: str) -> list[str]:
    """Returns which of the modules of the extra, or of `modules`, are not installed. Imports none of them."""
    return [module for module in modules or EXTRAS[extra].modules if not _is_there(module)]


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a package that the module is in
        return False


def fix_for(extra: str) -> str:
    """Returns the command that installs an extra."""
    return f'pip install "keepworth[{extra}]"'
