"""Training systems of papers: what of each is here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PaperSystem:
    """The `make` of a method of kind "system".

    Attributes:
        here: What of the paper's system is in this package.
        command: The command that runs with it, "" where the answer was not to have it.
    """

    here: str
    command: str = ""

    def __call__(self) -> str:
        """Returns the command."""
        return self.command
