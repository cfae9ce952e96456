"""The learned state of a policy, saved in the file so that a process that opens it need not learn everything anew."""

from __future__ import annotations

import base64
import json
import zlib
from array import array
from dataclasses import dataclass
from typing import Any

from keepworth.memory.store.connection import AnyConnection, scalar
from keepworth.memory.store.log import news_since
from keepworth.memory.store.notes import BEGINNING, beginning, fact, keep
from keepworth.memory.store.rows import NAMED


@dataclass(frozen=True, slots=True)
class Saved:
    """What was learned up to the reward with entry number `seq`: `state` is the policy's own, as JSON has it; `trusts`, by a
    reward's entry number, how far it counts for each choice that it is about."""

    seq: int
    state: Any
    trusts: dict[int, list[float]]


_SAVED = "learned "
"""Prefix of the names of saved states among the facts of a file."""


def save(connection: AnyConnection, name: str, state: Saved) -> None:
    """Save a state. It is valid as long as the journal goes on from its reward and nothing is rolled back or erased.

    Args:
        connection: A connection to the memory.
        name: The name of the state, which holds everything that it depends on besides the journal.
        state: What was learned, up to which reward.
    """
    seqs = array("q", [seq for seq, trusts in state.trusts.items() for _ in trusts])
    trusts = array("d", [trust for listed in state.trusts.values() for trust in listed])
    numbers = [base64.b64encode(column.tobytes()).decode() for column in (seqs, trusts)]
    chain = scalar(connection, f"SELECT {NAMED} FROM events WHERE seq = ?", (state.seq,))
    body = [state.seq, chain, state.state, *numbers]
    text = json.dumps([zlib.crc32(json.dumps(body).encode()), body])
    keep(connection, _SAVED + name, text)


def saved(connection: AnyConnection, name: str) -> Saved | None:
    """Return the state saved under this name, or None if there is no valid one."""
    try:
        checksum, body = json.loads(fact(connection, _SAVED + name) or "null")
    except (ValueError, TypeError):  # there is none, or it is damaged
        return None
    if zlib.crc32(json.dumps(body).encode()) != checksum:
        return None
    seq, chain, content, seqs, trusts = body
    *_, turned_back = news_since(connection, seq)
    if turned_back or scalar(connection, f"SELECT {NAMED} FROM events WHERE seq = ?", (seq,)) != chain:
        return None
    state = Saved(seq, content, {})
    for number, trust in zip(array("q", base64.b64decode(seqs)), array("d", base64.b64decode(trusts)), strict=True):
        state.trusts.setdefault(number, []).append(trust)
    return state


def forget_saved(connection: AnyConnection) -> None:
    """Delete all saved states, as they name rewarders."""
    connection.execute(f"DELETE FROM facts_of_file WHERE {BEGINNING}", beginning(_SAVED))
