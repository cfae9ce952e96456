"""Benchmarks: what there is to measure a memory on, behind one interface. Each gives tasks with a haystack to remember, a
question and the hidden key; who measures never knows where they came from.

    tasks = load("longmemeval", "test", distractors=50)
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from keepworth.episodes.episode import Task
from keepworth.episodes.errors import KeepworthError, UnknownName, require_known
from keepworth.registry import method, methods
from keepworth.tasks.data_files import WrongFormat
from keepworth.tasks.entries import MemoryEntry, entries, everybody
from keepworth.tasks.metrics import normalise
from keepworth.tasks.splits import SPLITS

Kind = Literal["answer", "choice", "stream"]
"""answer: a reader answers in words; choice: it chooses among `Task.options`; stream: tasks that reward what was done."""


class LeakingSplit(KeepworthError):
    """A question, or a session that holds its evidence, stands on two sides of a split."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """What a method of kind "benchmark" has as `make`: called with a split, it gives the tasks.

    Attributes:
        name: The name of the method.
        load: Split -> tasks, with the settings as keywords; `data` where the set is not shipped.
        kind: How it is answered.
        metric: The headline, as `keepworth.evaluation.harness` names it.
        licence: Of the data.
        shipped: Whether the data comes with the package; else `--data` says where it is.
        dials: The settings that a variant of it is.
    """

    name: str
    load: Callable[..., list[Task]]
    kind: Kind = "answer"
    metric: str = "f1"
    licence: str = "Apache-2.0"
    shipped: bool = False
    dials: Mapping[str, Any] = field(default_factory=dict)

    def settings(self) -> dict[str, inspect.Parameter]:
        """What can be set, by name: the keywords of its loader but `data`."""
        parameters = inspect.signature(self.load).parameters.items()
        return {
            name: parameter
            for name, parameter in parameters
            if parameter.kind is parameter.KEYWORD_ONLY and name != "data"
        }

    def __call__(self, split: str, *, data: Path | None = None, **dials: Any) -> list[Task]:
        """The tasks of one split. `dials` come before those of the benchmark itself.

        Raises:
            UnknownName: Of the split or a setting.
            MissingData: The data is not shipped and was not found.
            WrongFormat: The data is not of this set.
            LeakingSplit: A question stands on two sides.
        """
        require_known("split", split, SPLITS)
        settings = self.settings()
        for name in dials:
            if name not in settings:
                raise UnknownName("setting", name, settings, f"benchmark {self.name!r}")
        takes_data = "data" in inspect.signature(self.load).parameters
        if data is not None and not takes_data:
            raise KeepworthError(f"the benchmark {self.name!r} comes with the package.", "Leave --data out.")
        tasks = self.load(split, **({"data": data} if takes_data else {}), **{**self.dials, **dials})
        if not tasks:
            raise KeepworthError(
                f"the benchmark {self.name!r} has no question in its split {split!r} with these settings.",
                "Choose another split, or wider settings.",
            )
        return tasks


SIZES = Path(__file__).parent / "data" / "benchmark_sizes.json"


def sizes() -> dict[str, Any]:
    """What is known of the size of each benchmark, by name: questions of each side, haystacks and entries, and hashes. Counted by
    `python -m benchmarks.catalogue.sizes`; sets that nobody here has are not in it."""
    content: dict[str, Any] = json.loads(SIZES.read_text(encoding="utf-8"))
    return content


def read_settings(parameters: Mapping[str, inspect.Parameter], assignments: Iterable[str], of: str) -> dict[str, Any]:
    """`name=value` words as settings, of the type of their annotations. of: whose they are. Raises KeepworthError."""
    values = dict[str, Any]()
    for word in assignments:
        name, equals, value = word.partition("=")
        if not equals:
            raise KeepworthError(f"{word!r} sets nothing.", "Write NAME=VALUE, such as distractors=50.")
        if name not in parameters:
            raise UnknownName("setting", name, parameters, of)
        values[name] = _as(str(parameters[name].annotation), value, name)
    return values


def _as(annotation: str, value: str, name: str) -> Any:
    if annotation.startswith("bool"):
        if value.lower() not in ("true", "false"):
            raise KeepworthError(f"{name}={value}: it is on or off.", f"Write {name}=true or {name}=false.")
        return value.lower() == "true"
    for kind in (int, float):
        if annotation.startswith(kind.__name__):
            try:
                return kind(value)
            except ValueError:
                raise KeepworthError(f"{name}={value} is no number.", f"Write {name}=1 or another number.") from None
    return tuple(value.split(",")) if annotation.startswith("Sequence") else value


# What of a task is remembered.


def haystack(task: Task, words: int = 60) -> list[MemoryEntry]:
    """Everything that was said, by everybody, in order of time, in windows of at most `words` words. The key is left out: no
    system learns from it what is evidence."""
    return entries(task, words, everybody(task))


def place(entry: MemoryEntry) -> str:
    """The id of an entry: session, turn and window."""
    return f"{entry.session}/{entry.turn}.{entry.window}"


def turn_of(place: str) -> str:
    """The turn that an entry's id speaks of."""
    return place.rpartition(".")[0]


def session_of(place: str) -> str:
    return place.rpartition("/")[0]


def sharing(tasks: Sequence[Task]) -> list[list[int]]:
    """Places of tasks by haystack, in the order in which haystacks are first met: who reads a conversation once may be asked all
    its questions."""
    groups: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for number, task in enumerate(tasks):
        groups.setdefault(tuple((session.id, len(session.turns)) for session in task.sessions), []).append(number)
    return list(groups.values())


def cluster_of(task: Task) -> str:
    """What a question is one draw of: questions over one conversation are alike, so whole conversations are resampled."""
    return str(task.tags.get("cluster") or task.tags.get("conversation") or task.key)


def digest(tasks: Sequence[Task]) -> str:
    """A hash of all that tasks ask, hold and accept: equal data has equal ones. How answers are judged is in `scoring`."""
    whole = hashlib.sha256()
    cache: dict[int, bytes] = {}
    for task in tasks:
        for part in (task.key, task.input, *task.answers, *task.options, task.asked_at):
            whole.update(part.encode("utf-8", "surrogatepass") + b"\x1f")
        for session in task.sessions:
            if id(session.turns) not in cache:
                turns = (
                    "\x1e".join((t.speaker, t.text, str(t.evidence), *([t.date] if t.date else [])))
                    for t in session.turns
                )
                content = "\x1f".join((session.id, session.date, *turns))
                cache[id(session.turns)] = hashlib.sha256(content.encode("utf-8", "surrogatepass")).digest()
            whole.update(cache[id(session.turns)])
    return whole.hexdigest()


def scoring(tasks: Sequence[Task]) -> str:
    """A hash of how answers to tasks are judged and summed up: verifiers, clusters and labels."""
    judged = [[task.key, task.verifier, cluster_of(task), sorted(task.tags.items())] for task in tasks]
    return hashlib.sha256(json.dumps(judged).encode()).hexdigest()


def refuse_leaks(sides: Mapping[str, Sequence[Task]]) -> None:
    """Raises LeakingSplit where a session with evidence is on two sides, or a question, in whatever spelling, with its answer:
    what holds the answer on one side (the evidence, or all that was said where none is marked) is told to the other. Two who
    were told different things are no leak if they ask alike; where one was told nothing, the question alone holds the answer."""
    places: dict[str, list[tuple[str, Task]]] = {}
    shown: dict[str, tuple[str, str]] = {}
    for side, tasks in sides.items():
        for task in tasks:
            question = "\x1f".join((normalise(task.input), *sorted(map(normalise, task.answers))))
            alike = places.setdefault(question, [])
            leaks = [(at, other.key, "question") for at, other in alike if at != side and _one_source(other, task)]
            alike.append((side, task))
            for session in task.evidence:
                at, key = shown.setdefault(session, (side, task.key))
                if at != side:
                    leaks.append((at, key, "session"))
            for at, key, what in leaks:
                raise LeakingSplit(
                    f"the {what} of {task.key} ({side}) is also that of {key} ({at}): who learned on one side "
                    "knows the other.",
                    "Put both on one side, or take one of them out.",
                )


def _one_source(one: Task, other: Task) -> bool:
    """Whether what holds the answer to one question was told to who is asked the other."""
    texts = [{normalise(turn.text) for session in task.sessions for turn in session.turns} for task in (one, other)]
    marked = [
        {normalise(turn.text) for session in task.sessions for turn in session.turns if turn.evidence}
        for task in (one, other)
    ]
    holding = [some or whole for some, whole in zip(marked, texts, strict=True)]
    return not all(texts) or bool(holding[0] & texts[1] or holding[1] & texts[0])


# By name.


def benchmarks() -> dict[str, Benchmark]:
    """Every benchmark by name."""
    return {name: cast(Benchmark, declared.make) for name, declared in methods("benchmark").items()}


def named(name: str) -> Benchmark:
    """Raises UnknownName; WrongFormat where it is a file."""
    if Path(name).is_file() or Path(name).suffix in (".json", ".csv", ".parquet", ".gz"):
        raise WrongFormat(
            f"{name} is no name of a benchmark, and no file of JSON lines.",
            "Questions of your own stand in a file NAME.jsonl: see docs/benchmarks.md.",
        )
    return cast(Benchmark, method("benchmark", name).make)
