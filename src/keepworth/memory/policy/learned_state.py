"""What was learned, as JSON and arrays, and back into the slots of a fresh policy.

Only what this package defines is written: what else a slot of somebody else knows cannot be told, so such a policy is read from
the log. A slot of this package may say:

    NOT_LEARNED    names of attributes that are no part of what was learned
    READS_ITEMS    whether what it learns depends on what items say, beside which they are and what they advise
    trim()         gives up room in its columns
"""

from __future__ import annotations

import array
import hashlib
import json
import logging
import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from pathlib import Path
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import numpy as np

from keepworth.memory import item
from keepworth.memory.policy.slots import Policy
from keepworth.memory.search.beside import Unfit
from keepworth.memory.store import log
from keepworth.memory.store.connection import AnyConnection
from keepworth.memory.store.learned_file import learned_path, read_learned, state_of, went_through, write_learned

if TYPE_CHECKING:
    import numpy.typing as npt

    from keepworth.memory.item import Item
    from keepworth.memory.policy.experience import Experience
    from keepworth.memory.store.store import Store

    Arrays = list[npt.NDArray[Any]]

_LOG = logging.getLogger("keepworth.memory")
OURS = __name__.partition(".")[0]
PATIENCE, CLOSING = 10.0, 1.0
"""Seconds to wait for other processes that write, while the memory is open and when it is closed."""
_PLAIN = {type(None), bool, int, float, str}


class Beside:
    """Where a policy keeps what it learned beside the memory. policy: fresh; items: as the pool will have them, in order; whose:
    names the scope and the policy; settings: of what else decides what is learned. Raises Unfit."""

    def __init__(
        self,
        store: Store,
        connection: AnyConnection,
        policy: Policy,
        items: Sequence[Item],
        whose: Sequence[str],
        settings: Sequence[Any],
    ) -> None:
        self._store, self._connection, self._items = store, connection, items
        self._reads_items = _reads_items(policy)
        self._about = {
            "whose": list(whose),
            "settings": _plain(settings),
            "learner": fingerprint(policy),
        }
        self._name = hashlib.blake2b(json.dumps(whose).encode(), digest_size=4).hexdigest()

    def read(self, experience: Experience) -> int:
        """Fill in what lies there. The entry of the journal up to which it was learned: 0 where nothing that fits lies there, -1
        where it turned out not to fit when the experience was half filled."""
        place = self._store.database.place
        begun = False
        try:
            there = read_learned(learned_path(place, self._name))
            if there is None:
                return 0
            header, arrays = there
            if header["about"] != self._about:
                raise Unfit("it was learned with other settings, or by another version")
            if not went_through(self._store, self._connection, header["state"]):
                raise Unfit("it is not of an earlier state of this memory")
            head: int = header["state"]["head"]
            if header["items"] != self._named(head):
                raise Unfit("items have changed since")
            begun = True
            unpack(header["learned"], arrays, experience)
            return head
        except (Unfit, KeyError, TypeError) as problem:
            _LOG.info("what was learned beside %s is not used, but read from the log: %s", place, problem)
            return -1 if begun else 0

    def of(self, experience: Experience, head: int) -> LearnedState | None:
        """A copy of what is to be kept of what was learned up to entry `head`; None where it cannot be."""
        try:
            learned, arrays = pack(experience)
        except Unfit as reason:
            _LOG.info("what was learned cannot be kept beside %s: %s", self._store.database.place, reason)
            return None
        state = state_of(self._store, self._connection, head)
        header = {"about": self._about, "state": state, "items": self._named(head), "learned": learned}
        return LearnedState(self._store, self._name, header, [np.array(each) for each in arrays])

    def _named(self, head: int) -> str:
        """Names the items that were there at entry `head`, with what they say where that is learned from."""
        digest = hashlib.blake2b(digest_size=16)
        for each in self._items:
            if int(each.id[1:]) > head:
                break
            digest.update(f"{each.id} ".encode())
            # Actions are told apart by these words, whether it is advised or warned of them.
            advised = [*each.metadata.get("do", ()), *each.metadata.get("avoid", ())]
            read = [each.key, each.provenance.source, each.metadata] if self._reads_items else advised
            digest.update(json.dumps(read, sort_keys=True).encode())
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class LearnedState:
    """What is to lie beside the memory."""

    store: Store
    name: str
    header: Mapping[str, Any]
    arrays: Arrays

    def write(self, closing: threading.Event) -> None:
        """Between the writes of other processes, for which it waits a while, and less where the memory is closing. What cannot be
        written will be read from the log again."""
        begun, closes = time.monotonic(), math.inf

        def goes_on() -> bool:
            nonlocal closes
            now = time.monotonic()
            closes = min(closes, now + CLOSING) if closing.is_set() else closes
            return now < min(begun + PATIENCE, closes)

        try:
            write_learned(self.store, self.name, self.header, self.arrays, goes_on)
        except Exception as problem:  # whatever it is, nothing is lost but time when the memory is opened
            _LOG.warning("what was learned could not be kept beside %s: %s", self.store.database.path, problem)


def fingerprint(policy: Policy) -> str:
    """Names what a fresh policy learns how: its slots with their settings, and the version of the code. Raises Unfit."""
    arrays: Arrays = []
    slots = (policy.keyer, policy.valuer, list(policy.maintainers), policy.rehearse)
    room = sorted(map(str, Path(__file__).parent.glob("*.py")))
    said = json.dumps(
        [policy.name, [_packed(each, arrays) for each in slots], _code(*room, log.__file__, item.__file__)]
    )
    digest = hashlib.blake2b(said.encode(), digest_size=16)
    for each in arrays:
        digest.update(np.ascontiguousarray(each).data)
    return digest.hexdigest()


@cache
def _code(*files: str | None) -> str:
    """Names the code in files: what another version of it learned is learned again. Raises Unfit."""
    digest = hashlib.blake2b(np.__version__.encode(), digest_size=16)
    try:
        for file in files:
            digest.update(Path(file or "").read_bytes())
    except OSError as error:
        raise Unfit(f"the code cannot be read ({error})") from error
    return digest.hexdigest()


def _plain(settings: Sequence[Any]) -> Any:
    """As JSON gives them back. Raises Unfit."""
    try:
        return json.loads(json.dumps(settings, default=lambda number: number.item()))  # numbers of numpy
    except (TypeError, ValueError, AttributeError) as error:
        raise Unfit(f"a setting cannot be written down ({error})") from error


def _reads_items(policy: Policy) -> bool:
    """Whether what the policy learns depends on what items say."""
    slots = (policy.valuer, *policy.maintainers, getattr(policy.rehearse, "__self__", None))
    return any(getattr(slot, "READS_ITEMS", False) for slot in slots)


def pack(experience: Experience) -> tuple[dict[str, Any], Arrays]:
    """What was learned, as JSON and arrays, which are not copied. Raises Unfit."""
    arrays: Arrays = []
    alone = experience.alone
    learned = {
        **{name: _packed(value, arrays) for name, value in _parts(experience).items()},
        "people": list(experience.pool.people),
        "time": experience.time,
        "count": experience.count,
        "alone": [list(alone), [reward for reward, _ in alone.values()], [by for _, by in alone.values()]],
    }
    return learned, arrays


def unpack(learned: dict[str, Any], arrays: Sequence[npt.NDArray[Any]], experience: Experience) -> None:
    """Into an experience that has learned nothing and has no items. Raises Unfit, and the experience is of no use then."""
    try:
        for name, part in _parts(experience).items():
            _into(part, learned[name], arrays)
        for person in learned["people"]:
            experience.pool.person_of(person)
        experience.time, experience.count = learned["time"], learned["count"]
        decisions, *rest = learned["alone"]
        experience.alone = dict(zip(decisions, zip(*rest, strict=True), strict=True))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise Unfit(f"it does not fit the policy ({error!r:.200})") from error


def _parts(experience: Experience) -> dict[str, Any]:
    policy = experience.policy
    return {
        "valuer": policy.valuer,
        "maintainers": list(policy.maintainers),
        "rehearse": policy.rehearse,
        "scale": experience.scale,
        "clock": experience.clock,
        "actions": experience.pool.actions,
    }


def _packed(value: Any, arrays: Arrays) -> Any:
    if type(value) in _PLAIN:
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (np.ndarray, array.array)):
        arrays.append(np.asarray(value))
        return {"array": len(arrays) - 1}
    if isinstance(value, np.random.Generator):
        return {"generator": value.bit_generator.state}
    if isinstance(value, dict):
        return {"keys": _packed(list(value), arrays), "values": _packed(list(value.values()), arrays)}
    if isinstance(value, (set, frozenset)):
        return {"several": sorted(value), "as": "set"}
    if isinstance(value, (list, tuple, deque)):
        plain = set(map(type, value)) <= _PLAIN
        listed = list(value) if plain else [_packed(each, arrays) for each in value]
        return {"several": listed, "as": "tuple" if isinstance(value, tuple) else "list"}
    if isinstance(value, MethodType):
        return {"of": _packed(value.__self__, arrays), "method": value.__name__}
    if isinstance(value, (FunctionType, type)):
        return {"function": _ours(value)}
    name = _ours(type(value))
    trim: Callable[[], None] = getattr(value, "trim", lambda: None)
    trim()
    fields = {name: _packed(getattr(value, name), arrays) for name in _fields(value)}
    return {"class": name, "fields": fields}


def _into(value: Any, said: Any, arrays: Sequence[npt.NDArray[Any]]) -> Any:
    """What was packed, as it was. value: what is in its place in a fresh policy; objects are filled in, not made."""
    if not isinstance(said, dict):
        return said
    if "array" in said:
        found = arrays[said["array"]]
        return array.array(value.typecode, found.tobytes()) if isinstance(value, array.array) else found
    if "generator" in said:
        value.bit_generator.state = said["generator"]
        return value
    if "keys" in said:
        keys, values = (_into([], said[name], arrays) for name in ("keys", "values"))
        return dict(zip(keys, values, strict=True))
    if "several" in said:
        here = [*value] if isinstance(value, (list, tuple)) else []
        listed = [_into(old, each, arrays) for old, each in zip_longest(here, said["several"])]
        if isinstance(value, deque):
            return deque(listed, value.maxlen)
        return {"list": list, "tuple": tuple, "set": set}[said["as"]](listed)
    if "of" in said:
        _into(value.__self__, said["of"], arrays)
    if "fields" in said:
        for name, field in said["fields"].items():
            known = getattr(value, name)
            fresh = _into(known, field, arrays)
            if fresh is not known:
                object.__setattr__(value, name, fresh)
    return value


def _fields(value: object) -> Iterator[str]:
    """Names of what an object consists of, but for what is not learned."""
    skipped = getattr(value, "NOT_LEARNED", ())
    slots = (name for each in type(value).__mro__ for name in getattr(each, "__slots__", ()))
    yield from (name for name in (*slots, *getattr(value, "__dict__", ())) if name not in skipped)


def _ours(made: Any) -> list[str]:
    """Name and code of a function or a class. Raises Unfit for one of others, or one that was made on the way."""
    module, name = getattr(made, "__module__", ""), getattr(made, "__qualname__", "<locals>")
    if not module.startswith(f"{OURS}.") or "<" in name:
        raise Unfit(f"{module}.{name} is not of this package")
    return [module, name, _code(sys.modules[module].__file__)]
