"""Outcomes that the tools of an agent tell, as rewards: a test that passes, a command that fails (`keepworth.memory.signals`).

    run = train(rows, agent=my_agent, reward="signals")

Results of tools are read in the calls of the program to its model. A later outcome of the same family takes the place of an
earlier one, as the last run of the tests says how the work ended. The reward is the mean of their values, by the weights of the
table."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from keepworth.memory.signals import find_signal, is_check, read_tool, sum_up, tell_mended
from keepworth.records.episode import Episode
from keepworth.serving.call_formats import tool_ends

SIGNALS = "signals"
"""The name of this reward."""


class ToolOutcomes:
    """What the tools of one rollout told.

    Attributes:
        names: Names of signals, in the order in which they were seen.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self._seen: set[bytes] = set()

    def read(self, body: Mapping[str, Any]) -> None:
        """Read the results of tools in a call's body. One that is sent again, as after a failed answer, counts once."""
        pieces = body.get("messages", body.get("input"))
        if not isinstance(pieces, list):
            return
        ends = tool_ends([piece for piece in pieces if isinstance(piece, Mapping)])
        digest = hashlib.blake2b(json.dumps(pieces, sort_keys=True, default=str).encode("utf-8", "replace")).digest()
        if not ends or digest in self._seen:
            return
        self._seen.add(digest)
        for end in ends:
            if end.failed is None and not is_check(end.command):
                continue
            name = read_tool(end.command, failed=bool(end.failed), output=end.output)
            if name:
                self.names.append(tell_mended(name, self.names))


def score_signals(answer: Any, row: Mapping[str, Any], episode: Episode | None) -> float | None:
    """Return the reward of an episode by its signals; None where its tools told nothing.

    Args:
        answer: What the program returned, which is not judged.
        row: The row of the task, which is not read.
        episode: What was played, with the signals of its tools; None before anything was.
    """
    return None if episode is None else sum_up(map(find_signal, episode.signals))
