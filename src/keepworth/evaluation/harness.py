"""The harness: asks systems the questions of a benchmark, stores one row per question as it comes, and computes scores.

Every system is given the same entries in the same order, the same questions, and the same budget: of the items that it shows,
best first, as many as fit into `tokens` of the reader. All systems share one reader and its prompt."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from keepworth.base.errors import KeepworthError
from keepworth.base.json_values import read_json
from keepworth.base.line_file import append_lines, no_line, read_lines
from keepworth.base.metrics import bleu1, exact_match, token_f1
from keepworth.evaluation.diagnostics import recall_at, stage
from keepworth.evaluation.judge import Judge, Judging
from keepworth.evaluation.system import (
    LIVE,
    Answered,
    AskedQuestion,
    Guarded,
    Maker,
    NeverAnswered,
    Rewards,
    SystemFailed,
    evidence_of,
    list_stored,
    oracle,
)
from keepworth.records.episode import Shown, Task
from keepworth.training.run_folder import write_json
from keepworth.worlds.benchmark import cluster_of, place, session_of, sharing, turn_of
from keepworth.worlds.splits import draw_order
from keepworth.worlds.verifiers import verify

DEPTHS = (1, 5, 10, 20, 50)
"""The numbers of top items at which recall of evidence is measured."""
MOST = 50
"""The most items that a system may show, before they are cut to the budget."""
CHUNK = 8
"""Questions that the reader answers before their rows are stored: the most that a stopped run loses."""


@dataclass(frozen=True, slots=True)
class Played:
    """The outcome of a task that was played.

    Attributes:
        answer: The last words of the model.
        scores: The reward, as `score`, and its terms.
        error: Why there is no score; "" where there is one.
    """

    answer: str = ""
    scores: Mapping[str, float] = field(default_factory=dict)
    error: str = ""


class BenchmarkReader(Protocol):
    """Answers questions from the items shown. `tokens` counts a text for the budget; `room` is the most tokens that may be
    shown. One that has `plays` plays tasks, which bring their own rewards (`plays_of`)."""

    @property
    def identity(self) -> str: ...
    @property
    def room(self) -> int: ...
    def tokens(self, text: str) -> int: ...
    def answers(self, queries: Sequence[tuple[str, Sequence[str]]]) -> list[str]: ...
    def choices(self, queries: Sequence[tuple[str, Sequence[str], Sequence[str]]]) -> list[int]:
        """Returns the index of each chosen option; -1 where none was chosen."""
        ...


def plays_of(reader: BenchmarkReader | None) -> Callable[[Sequence[tuple[Task, Sequence[str]]]], list[Played]] | None:
    """Returns the function with which a reader plays tasks, each with the texts of a memory; None where it answers questions."""
    plays: Callable[[Sequence[tuple[Task, Sequence[str]]]], list[Played]] | None = getattr(reader, "plays", None)
    return plays


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions of a measurement.

    Attributes:
        setting: One of `evaluation.system.SETTINGS`.
        tokens: The most tokens that are shown.
        words: The most words of an entry.
    """

    setting: str = "frozen"
    seed: int = 0
    tokens: int = 512
    words: int = 60


@dataclass(slots=True)
class Row:
    """The result of one question put to one system.

    Attributes:
        scores: The score by each metric.
        recall: At each depth, the share of evidence turns among the first items, and of sessions.
        stage: Where the evidence got lost (see `diagnostics.stage`).
        shown: Ids of the items that the reader saw.
        error: The system's error, with which it scores 0.
        unjudged: Why a judge gave no score.
    """

    key: str
    cluster: str
    type: str
    system: str
    setting: str
    seed: int
    answer: str = ""
    scores: dict[str, float] = field(default_factory=dict)
    recall: dict[str, float] = field(default_factory=dict)
    stage: str = ""
    shown: list[str] = field(default_factory=list)
    items: int = 0
    tokens: int = 0
    seconds: float = 0.0
    calls: int = 0
    error: str = ""
    unjudged: str = ""


class Measurement:
    """Asks one system the questions of a benchmark."""

    def __init__(
        self,
        name: str,
        make: Maker,
        tasks: Sequence[Task],
        plan: Conditions,
        reader: BenchmarkReader | None,
        *,
        keep: Callable[[Row], None],
        note: Callable[[Mapping[str, Any]], None] = lambda record: None,
        judge: Judge | None = None,
    ) -> None:
        """Makes the system.

        Args:
            keep: Receives each row when it is complete.
            note: Receives the cost of writing each haystack.
            judge: Scores answers besides the lexical metrics. Where it fails, the measurement goes on without it.
        """
        self.name, self.tasks, self.plan, self.reader, self.keep, self.note = name, tasks, plan, reader, keep, note
        self.system, self.rewards = Guarded(make()), Rewards(plan.setting, plan.seed)
        self.judge = None if judge is None else Judging(judge)
        self.plays = plays_of(reader)
        self.first: frozenset[str] | None = None
        self.waiting: list[tuple[Row, Task, list[Shown]]] = []
        self.counted: tuple[tuple[str, ...], int] = ((), 0)
        """The texts that were last shown whole, and their tokens."""

    def ask_all(self, done: Mapping[str, float | None] = MappingProxyType({})) -> None:
        """Asks all questions that are not `done`, which has finished ones with their scores (`EvaluationFolder.done`). A system
        that fails scores 0 on that question. Raises KeepworthError where the setting is impossible for these tasks."""
        groups = sharing(self.tasks)
        live = self.plan.setting in LIVE
        try:
            for number, group in enumerate(groups):
                open_ = [self.tasks[one] for one in group if live or self.tasks[one].key not in done]
                if any(task.key not in done for task in open_):
                    about = self._tell(groups, number)
                    self._group(open_, about, done)
                elif live:
                    # A system is emptied between haystacks, but later ones may be passed rewards from here.
                    for earned in (done[task.key] for task in open_):
                        if earned is not None:
                            self.rewards.passed_on(earned)
            self._answer()
        finally:
            self.system.close()

    def _tell(self, groups: Sequence[Sequence[int]], number: int) -> list[Task]:
        """Returns the tasks whose haystack is written: those of this group, or in the setting `another` those of a group without
        shared evidence."""
        tasks = [self.tasks[one] for one in groups[number]]
        if self.plan.setting != "another":
            return tasks
        evidence = {session for task in tasks for session in task.evidence}
        for step in range(1, len(groups)):
            other = [self.tasks[one] for one in groups[(number + step) % len(groups)]]
            if not evidence & {session.id for session in other[0].sessions}:
                return other
        raise KeepworthError(
            "no other question's memory can be shown: all questions share one haystack.",
            "Leave the setting `another` out, or measure on a benchmark with several haystacks.",
        )

    def _group(self, open_: Sequence[Task], about: Sequence[Task], done: Mapping[str, float | None]) -> None:
        plan, began = self.plan, time.perf_counter()
        entries = list_stored(about, plan.words)
        trouble = ""
        try:
            self.system.begin(plan.seed)
            self.system.write(entries)
            took = time.perf_counter() - began
            evidence = [place(entry) for task in open_ for entry in evidence_of(task, plan.words)]
            from_tasks = plan.setting not in ("oracle", "another")
            self.first = self.system.holds(list(dict.fromkeys(evidence))) if from_tasks else None
            self.note(
                {
                    "system": self.name,
                    "setting": plan.setting,
                    "seed": plan.seed,
                    "haystack": about[0].key,
                    "entries": len(entries),
                    "seconds": took,
                    "bytes": self.system.size(),
                    "versions": dict(self.system.versions),
                }
            )
        except NeverAnswered:
            raise
        except SystemFailed as error:
            trouble = error.message
        for task in open_:
            row = Row(task.key, cluster_of(task), str(task.tags.get("type", "")), self.name, plan.setting, plan.seed)
            # A live system answers finished questions again, so that it learns again what it had learned.
            finished = task.key in done
            shown = self._ask(task, row, trouble)
            if row.error:
                self._score(row, task, "")
                if not finished:
                    self.keep(row)
            elif plan.setting in LIVE:
                self._finish([(row, task, shown)], keep=not finished)
                # Environments reward as they like, and a memory is told rewards from 0 to 1.
                earned = self.rewards.passed_on(min(1.0, max(0.0, row.scores.get("score", 0.0))))
                try:
                    if earned is not None:
                        self.system.learn(earned, [item.item for item in shown if item.item])
                except SystemFailed as error:
                    trouble = error.message
            else:
                self.waiting.append((row, task, shown))
                if len(self.waiting) >= CHUNK:
                    self._answer()

    def _ask(self, task: Task, row: Row, trouble: str) -> list[Shown]:
        plan = self.plan
        evidence = evidence_of(task, plan.words)
        gold = [place(entry) for entry in evidence]
        if trouble:
            row.error = trouble
            return []
        began = time.perf_counter()
        try:
            if plan.setting == "oracle":
                answered = oracle(evidence)
            else:
                answered = self.system.ask(AskedQuestion(task.input, MOST, task.asked_at, tuple(shuffle_options(task))))
            row.seconds, row.calls = time.perf_counter() - began, answered.calls
            holds_gold = self.system.holds(gold) if gold and plan.setting != "oracle" else None
        except SystemFailed as error:
            row.error = error.message
            return []
        shown = self._fitting(answered, row)
        row.shown = [] if self.system.whole else [item.item for item in shown]
        ranked = [item.item for item in answered.shown]
        # A system that answers by itself and shows nothing does not say which items it found.
        silent = answered.answer is not None and not answered.shown
        if gold and not silent:
            row.recall = {} if self.system.whole else evidence_found(gold, ranked)
            turns = {turn_of(item.item) for item in shown}
            row.recall["shown"] = len(turns & {turn_of(id) for id in gold}) / len({turn_of(id) for id in gold})
        row.stage = stage(
            map(turn_of, gold),
            shown=[turn_of(item.item) for item in shown],
            candidates=None if self.system.whole or silent else map(turn_of, ranked),
            kept_items=None if holds_gold is None else map(turn_of, holds_gold),
            written=None if self.first is None else map(turn_of, self.first),
        )
        row.answer = answered.answer if answered.answer is not None else ""
        if answered.answer is not None:
            row.scores["answered itself"] = 1.0
        return shown

    def _fitting(self, given: Answered, row: Row) -> list[Shown]:
        """Returns the best items that fit into the budget."""
        count = self.reader.tokens if self.reader is not None else lambda text: len(text.split())
        if self.system.whole:
            # Questions about one haystack are all shown the same texts, which may have millions of tokens.
            texts = tuple(item.text for item in given.shown)
            if texts != self.counted[0]:
                self.counted = texts, sum(map(count, texts))
            row.items, row.tokens = len(texts), self.counted[1]
            if self.reader is not None and row.tokens > self.reader.room:
                row.error = DOES_NOT_FIT
            return list(given.shown)
        fitting: list[Shown] = []
        for item in given.shown:
            more = count(item.text)
            if row.tokens + more > self.plan.tokens:
                break
            fitting.append(item)
            row.tokens += more
        row.items = len(fitting)
        return fitting

    def _answer(self) -> None:
        if self.waiting:
            self._finish(self.waiting, keep=True)
            self.waiting = []

    def _finish(self, asked: Sequence[tuple[Row, Task, list[Shown]]], *, keep: bool) -> None:
        if self.reader is not None:
            self._read(self.reader, [query for query in asked if "answered itself" not in query[0].scores])
        for row, task, _ in asked:
            if row.scores.pop("answered itself", None) is None and self.plays is not None:
                continue
            self._score(row, task, row.answer)
        if self.judge is not None:
            for row, task, _ in asked:
                if row.scores and not task.options:
                    score = self.judge(task.input, " or ".join(task.answers), row.answer)
                    row.scores |= {} if score is None else {"judge": score}
                    row.unjudged = self.judge.last if score is None else ""
        if keep:
            for row, _, _ in asked:
                self.keep(row)

    def _read(self, reader: BenchmarkReader, asked: Sequence[tuple[Row, Task, list[Shown]]]) -> None:
        """Fills in the reader's answers, or its choices where there are options."""
        if self.plays is not None:
            texts_of = [(task, in_time(items, _order(task))) for _, task, items in asked]
            for (row, _, _), played in zip(asked, self.plays(texts_of), strict=True):
                row.calls, row.answer, row.error = row.calls + 1, played.answer, played.error
                row.scores = dict(played.scores) or {"score": 0.0}
                row.stage = ""  # there is no evidence to lose, and a reward may be any number
            return
        open_, among = list[tuple[Row, Task, list[str]]](), list[tuple[Row, Task, list[str]]]()
        for row, task, items in asked:
            row.calls += 1
            texts = in_time(items, _order(task))
            (among if task.options else open_).append((row, task, texts))
        if open_:
            for (row, _, _), answer in zip(open_, reader.answers([(t.input, m) for _, t, m in open_]), strict=True):
                row.answer = answer
        if among:
            picks = reader.choices([(t.input, m, shuffle_options(t)) for _, t, m in among])
            for (row, task, _), pick in zip(among, picks, strict=True):
                row.answer = "" if pick < 0 else shuffle_options(task)[pick]

    def _score(self, row: Row, task: Task, answer: str) -> None:
        if self.plays is not None:
            row.error = row.error or "it answers by itself, and a task is played by the reader"
            row.scores = {"score": 0.0}
            return
        if row.error != DOES_NOT_FIT and (self.reader is not None or answer or row.error):
            row.scores = score_answer(task, answer)


DOES_NOT_FIT = "does not fit"


def score_answer(task: Task, answer: str) -> dict[str, float]:
    """Returns every metric of one answer. `score` is by the task's own verifier, else F1; with options it says whether the answer
    is right."""
    if task.options:
        return {"score": float(answer in task.answers)}
    f1, em = token_f1(answer, task.answers), exact_match(answer, task.answers)
    score = f1 if task.verifier in ("token_f1", "none", "") else verify(task, answer)
    return {"score": score, "f1": f1, "em": em, "bleu1": bleu1(answer, task.answers)}


def shuffle_options(task: Task) -> list[str]:
    """Returns the options in a random order that is the same for every system."""
    return sorted(task.options, key=lambda option: draw_order("options", task.key, option))


def evidence_found(gold: Sequence[str], ranked: Sequence[str]) -> dict[str, float]:
    """Returns the share of turns and of sessions with evidence among the first items, at each of DEPTHS. Each turn counts
    once."""
    recall = {}
    for depth in DEPTHS:
        for name, of in (("turn", turn_of), ("session", session_of)):
            share = recall_at(ranked, gold, depth, of)
            if share is not None:
                recall[f"{name}@{depth}"] = share
    return recall


def _order(task: Task) -> dict[str, int]:
    return {session.id: number for number, session in enumerate(task.sessions)}


def in_time(shown: Sequence[Shown], sessions: Mapping[str, int]) -> list[str]:
    """Returns the texts in order of time. Texts without a time, such as a system's own, come first in their order."""

    def position(item: Shown) -> tuple[int, int, int]:
        session, _, rest = item.item.rpartition("/")
        turn, _, window = rest.partition(".")
        if session not in sessions or not turn.isdigit():
            return (-1, 0, 0)
        return (sessions[session], int(turn), int(window) if window.isdigit() else 0)

    return [item.text for item in sorted(shown, key=position)]


# Rows on disk.


class EvaluationFolder:
    """The folder of an evaluation: its identity, and one line per question as it comes. The same evaluation continues in it.
    Raises KeepworthError where the folder holds another one."""

    def __init__(self, folder: Path, identity: Mapping[str, Any]) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.rows, self.writes = folder / "rows.jsonl", folder / "writes.jsonl"
        note = folder / "plan.json"
        if note.exists():
            differing = unlike(read_json(note, "Give another folder as --out, or remove it."), identity)
            if differing:
                raise KeepworthError(
                    f"{folder} holds an evaluation with other {', '.join(differing)}.",
                    "Give another folder as --out, or remove it.",
                )
        else:
            write_json(note, identity)

    def read(self) -> list[Row]:
        """Returns the last row of each question and system. Raises KeepworthError where a line is not a row."""
        rows = []
        for number, record in enumerate(read_lines(self.rows), start=1):
            try:
                rows.append(Row(**record))
            except TypeError as error:
                raise no_line(self.rows, number, f"no row: {error}") from error
        return list({(row.key, row.system, row.setting, row.seed): row for row in rows}.values())

    def done(self, system: str, plan: Conditions) -> dict[str, float | None]:
        """Returns the finished questions by key, with their scores; None where the memory did not fit. Questions at which the
        system failed are not among them, because it may be repaired."""
        return {
            row.key: None if row.error else row.scores.get("score", 0.0)
            for row in self.read()
            if (row.system, row.setting, row.seed) == (system, plan.setting, plan.seed)
            and row.error in ("", DOES_NOT_FIT)
        }

    def keep(self, row: Row) -> None:
        append_lines(self.rows, [asdict(row)])

    def note(self, record: Mapping[str, Any]) -> None:
        append_lines(self.writes, [record])

    def costs(self) -> list[dict[str, Any]]:
        return list(read_lines(self.writes))


FREE = ("versions", "machine", "began")
"""Parts of an evaluation's identity that may differ when it is continued."""


def unlike(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Returns the names of the parts in which two evaluations differ, in order."""
    names = dict.fromkeys((*one, *other))
    return [name for name in names if name not in FREE and one.get(name) != other.get(name)]
