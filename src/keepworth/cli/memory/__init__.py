"""`keepworth memory`: the verbs of `keepworth.Memory`. Each file here adds some; help lists them in this order."""

# ruff: noqa: F401, I001
from keepworth.cli.memory.group import app
from keepworth.cli.memory import items, learning, experiment, file

__all__ = ["app"]
