"""Benchmarks to measure a memory on, behind one interface. Each gives tasks with a haystack to remember, a question and the
hidden key, so that the measurement does not depend on their origin.

    tasks = load("longmemeval", "test", distractors=50)"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import formatannotation
from pathlib import Path
from typing import Any, Literal, cast

from keepworth.base.errors import KeepworthError, UnknownName, require_known
from keepworth.base.metrics import normalise
from keepworth.records.episode import Task
from keepworth.registry import method, methods
from keepworth.worlds.data_files import WrongFormat
from keepworth.worlds.entries import MemoryEntry, entries, everybody
from keepworth.worlds.splits import SPLITS

Kind = Literal["answer", "choice", "stream"]
"""answer: a reader answers in words; choice: it chooses among `Task.options`; stream: tasks that reward actions."""


class LeakingSplit(KeepworthError):
    """A question, or a session that holds its evidence, is in two splits."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """The `make` of a method of kind "benchmark": returns the tasks of a split.

    Attributes:
        name: The name of the method.
        load: Loads the tasks of a split, with the settings as keywords, and `data` where the set is not shipped.
        kind: How questions are answered.
        metric: The main metric, as `keepworth.evaluation.harness` names it.
        licence: The licence of the data.
        shipped: Whether the data comes with the package; else `--data` names its place.
        dials: Settings that define a variant.
    """

    name: str
    load: Callable[..., list[Task]]
    kind: Kind = "answer"
    metric: str = "f1"
    licence: str = "Apache-2.0"
    shipped: bool = False
    dials: Mapping[str, Any] = field(default_factory=dict)

    def settings(self) -> dict[str, inspect.Parameter]:
        """Returns the settings by name: the keywords of its loader except `data`."""
        parameters = inspect.signature(self.load).parameters.items()
        return {
            name: parameter
            for name, parameter in parameters
            if parameter.kind is parameter.KEYWORD_ONLY and name != "data"
        }

    def __call__(self, split: str, *, data: Path | None = None, **dials: Any) -> list[Task]:
        """Returns the tasks of one split. `dials` override those of the benchmark.

        Raises:
            UnknownName: The split or a setting does not exist.
            MissingData: The data is not shipped and was not found.
            WrongFormat: The data is not of this set.
            LeakingSplit: A question is in two splits.
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
    """Returns the known sizes of benchmarks by name: questions of each split, haystacks and entries, and hashes. They are counted
    by `python -m benchmarks.catalogue.sizes`; sets that were not available are missing."""
    content: dict[str, Any] = json.loads(SIZES.read_text(encoding="utf-8"))
    return content


def read_settings(parameters: Mapping[str, inspect.Parameter], assignments: Iterable[str], of: str) -> dict[str, Any]:
    """Parses words of the form `name=value` as settings, by the types of their annotations. Raises KeepworthError for a name or a
    value that does not fit.

    Args:
        parameters: The settings that there are, as parameters of a function.
        assignments: The words, such as "distractors=50".
        of: The owner of the settings, for the message.
    """
    values = dict[str, Any]()
    for word in assignments:
        name, equals, value = word.partition("=")
        if not equals:
            raise KeepworthError(f"{word!r} sets nothing.", "Write NAME=VALUE, such as distractors=50.")
        if name not in parameters:
            raise UnknownName("setting", name, parameters, of)
        annotation = parameters[name].annotation
        values[name] = _as(annotation if isinstance(annotation, str) else formatannotation(annotation), value, name)
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
    return tuple(value.split(",")) if annotation.removeprefix("collections.abc.").startswith("Sequence") else value


# The entries of a task that are remembered.


def haystack(task: Task, words: int = 60) -> list[MemoryEntry]:
    """Returns all turns of all speakers, in order of time, in windows of at most `words` words. The marks of evidence are part of
    the hidden key; a system must not read them."""
    return entries(task, words, everybody(task))


def place(entry: MemoryEntry) -> str:
    """Returns the id of an entry: session, turn and window."""
    return f"{entry.session}/{entry.turn}.{entry.window}"


def turn_of(place: str) -> str:
    """Returns the turn of an entry's id."""
    return place.rpartition(".")[0]


def session_of(place: str) -> str:
    return place.rpartition("/")[0]


def sharing(tasks: Sequence[Task]) -> list[list[int]]:
    """Groups the indices of tasks by haystack, in order of appearance, so that a conversation is read once for all its
    questions."""
    groups: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for number, task in enumerate(tasks):
        groups.setdefault(tuple((session.id, len(session.turns)) for session in task.sessions), []).append(number)
    return list(groups.values())


def cluster_of(task: Task) -> str:
    """Returns the cluster of a question. Questions about one conversation are alike, so whole conversations are resampled."""
    return str(task.tags.get("cluster") or task.tags.get("conversation") or task.key)


def digest(tasks: Sequence[Task]) -> str:
    """Returns a hash of all questions, haystacks and answers of tasks; equal data has equal hashes. `scoring` hashes how answers
    are judged."""
    whole = hashlib.sha256()
    cache: dict[tuple[str, str, int], bytes] = {}  # two haystacks may name the same turns differently
    for task in tasks:
        for part in (task.key, task.input, *task.answers, *task.options, task.asked_at):
            whole.update(part.encode("utf-8", "surrogatepass") + b"\x1f")
        for session in task.sessions:
            key = session.id, session.date, id(session.turns)
            if key not in cache:
                turns = (
                    "\x1e".join((t.speaker, t.text, str(t.evidence), *([t.date] if t.date else [])))
                    for t in session.turns
                )
                content = "\x1f".join((session.id, session.date, *turns))
                cache[key] = hashlib.sha256(content.encode("utf-8", "surrogatepass")).digest()
            whole.update(cache[key])
    return whole.hexdigest()


def scoring(tasks: Sequence[Task]) -> str:
    """Returns a hash of how answers to tasks are judged and summarised: verifiers, clusters and labels."""
    judged = [[task.key, task.verifier, cluster_of(task), sorted(task.tags.items())] for task in tasks]
    return hashlib.sha256(json.dumps(judged).encode()).hexdigest()


def refuse_leaks(sides: Mapping[str, Sequence[Task]]) -> None:
    """Raises LeakingSplit where a session with evidence is in two splits, or a question with its answer, however it is spelled.

    A question leaks where the text that holds the answer in one split (the evidence, or the whole haystack where none is marked)
    is part of the haystack in the other. Equal questions about different texts are no leak. A task without a haystack leaks by
    its question alone."""
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
    """Whether the text that holds the answer to one question is in the haystack of the other."""
    texts = [{normalise(turn.text) for session in task.sessions for turn in session.turns} for task in (one, other)]
    marked = [
        {normalise(turn.text) for session in task.sessions for turn in session.turns if turn.evidence}
        for task in (one, other)
    ]
    holding = [some or whole for some, whole in zip(marked, texts, strict=True)]
    return not all(texts) or bool(holding[0] & texts[1] or holding[1] & texts[0])


# Benchmarks by name.


def benchmarks() -> dict[str, Benchmark]:
    """Returns every benchmark by name."""
    return {name: cast(Benchmark, declared.make) for name, declared in methods("benchmark").items()}


def find_benchmark(name: str) -> Benchmark:
    """Returns the benchmark of that name. Raises UnknownName; WrongFormat where it is a file."""
    if Path(name).is_file() or Path(name).suffix in (".json", ".csv", ".parquet", ".gz"):
        raise WrongFormat(
            f"{name} is no name of a benchmark, and no file of JSON lines.",
            "Questions of your own stand in a file NAME.jsonl: see docs/benchmarks.md.",
        )
    return cast(Benchmark, method("benchmark", name).make)
