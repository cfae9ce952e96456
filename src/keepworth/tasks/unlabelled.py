"""Tasks without labels from logs of one's own, with their sides and with what can be known before anything is trained.

    log = chat_log("chats.jsonl")
    made = unlabelled(log, ("cloze",))
    made.tasks        # OwnTasks: by side, nothing of a session on two of them
    made.report       # how many of what, what guessing earns, what was left out

| kind | asked | answer |
| --- | --- | --- |
| cloze | a sentence of the user with its name, number or date hidden | what is hidden, word for word in memory |
| rewarded | the conversation before an answer that had more reward than the average | that answer |

The first is self-supervised: the conversation is its own answer key. The second gives rows to imitate
(`method = supervised`, behaviour cloning of what was filtered by reward): nobody can reward an answer that is not in the log.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from math import sqrt
from statistics import fmean
from typing import Any

from keepworth.episodes.episode import Session, Task
from keepworth.episodes.errors import require_known
from keepworth.memory.sentences import sentences
from keepworth.tasks.chat_logs import ChatLog, Conversation, rewarded
from keepworth.tasks.cloze import BLANK, cloze, spans
from keepworth.tasks.data_files import WrongFormat
from keepworth.tasks.metrics import tokens
from keepworth.tasks.own import OwnTasks, divided
from keepworth.tasks.splits import SPLITS, draw_order, side, tied
from keepworth.tasks.verifiers import verify

KINDS = ("cloze", "rewarded")
MOST = 1000
"""Cloze tasks on one side."""
PHRASE_SESSIONS, PHRASE_SHARE = 10, 0.05
"""A sentence in more sessions than this, and in more than this share of them, is a phrase: nothing is asked about it."""
TELLING = 6
"""Words from which on a message, said in two conversations, ties them: of fewer, it may be anybody's."""
FEW = 100
"""Training tasks below which little can be expected."""


@dataclass(frozen=True, slots=True)
class UserStatement:
    """A sentence of a user; words: normalised."""

    text: str
    words: str


@lru_cache(maxsize=65_536)
def statements(session: Session) -> tuple[UserStatement, ...]:
    """The user's sentences of 6 to 40 words, from a capital to a full stop, without quotations."""
    return tuple(
        UserStatement(text, " ".join(tokens(text)))
        for turn in session.turns
        if turn.speaker == "user"
        for text in sentences(turn.text)
        if 6 <= len(text.split()) <= 40
        and text.endswith((".", "!"))
        and text[0].isupper()
        and not set('"“”') & set(text)
    )


@dataclass(frozen=True, slots=True)
class KindReport:
    """One kind of task. shortcuts: what simple rules earn on the tasks that are held out (dev and test, `held_out` of them); none
    looks for a sentence in memory. Of what is imitated only by_split is known."""

    kind: str
    by_split: Mapping[str, int]
    held_out: int = 0
    shortcuts: Mapping[str, float] = field(default_factory=dict)

    @property
    def best_shortcut(self) -> tuple[str, float]:
        return max(self.shortcuts.items(), key=lambda each: each[1], default=("", 0.0))


@dataclass(frozen=True, slots=True)
class RewardReport:
    """Rewards of answers. above: the share above the average of the training side; both: sessions with answers on either side of
    it."""

    count: int
    low: float = 0.0
    high: float = 0.0
    mean: float = 0.0
    above: float = 0.0
    both: int = 0


@dataclass(frozen=True, slots=True)
class LogReport:
    """What can be learned from a log. tied_sets: sets of sessions that share nothing with each other. measured: how many test
    tasks a run measures on, and of how many tied sets those are."""

    name: str
    sessions: int
    people: int
    dated: int
    turns: int
    statements: int
    tied_sets: int
    sides: Mapping[str, int]
    kinds: tuple[KindReport, ...]
    measured: tuple[int, int]
    rewards: RewardReport
    left_out: Mapping[str, int]
    unread: tuple[str, ...]
    verdict: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> Iterator[str]:
        """For people to read."""
        split = ", ".join(f"{self.sides[each]} {each}" for each in SPLITS)
        yield f"{self.name}: {self.sessions} sessions ({split}), {self.turns} turns of the user, {self.statements} statements."
        known = f"{self.people} people, " if self.people else ""
        yield f"{known}{self.dated} sessions with a time, {self.tied_sets} sets of sessions that share no sentence."
        for kind in self.kinds:
            counts = ", ".join(f"{kind.by_split[split]} {split}" for split in SPLITS)
            rule, value = kind.best_shortcut
            rules = f" On {kind.held_out} held out: best simple rule {value:.2f} ({rule})." if kind.shortcuts else ""
            yield f"{kind.kind}: {counts} tasks.{rules}"
        found = self.rewards
        if found.count:
            values = f"{found.low:g} to {found.high:g}, mean {found.mean:.2f}"
            where = f"{found.both} sessions with answers above and below"
            yield f"Rewards: {found.count} answers, {values}; {found.above:.0%} above average; {where}."
        for why, count in self.left_out.items():
            yield f"Left out: {count} {why}."
        if self.unread:
            yield f"Fields that are not read: {', '.join(self.unread)}."
        yield from self.verdict


@dataclass(frozen=True, slots=True)
class MadeTasks:
    tasks: OwnTasks
    report: LogReport


def unlabelled(
    log: ChatLog, kinds: Sequence[str] = ("cloze",), *, seed: int = 0, distractors: int = 4, questions: int = 100
) -> MadeTasks:
    """Tasks of `kinds` from a log, on three sides that share no session, no person and no sentence that is asked about; of the
    kind rewarded, no question and no answer either.

    distractors: how many other sessions of the same side (and person) are in a task's memory. questions: how many test tasks a
    run measures on. Raises UnknownName; WrongFormat where nothing can be held out, or no task of a kind can be made."""
    if not kinds:
        raise WrongFormat("No kind of task was named.", f"Name some of {', '.join(KINDS)}.")
    for kind in kinds:
        require_known("kind of task", kind, KINDS)
    if "rewarded" in kinds and len(set(kinds)) > 1:
        raise WrongFormat(
            "Tasks of the kind rewarded are imitated, and others are not.",
            "Train them one after the other, by themselves.",
        )
    sessions = {conversation.id: conversation.session for conversation in log.conversations}
    phrases = _phrases(sessions.values())
    people = {conversation.id: conversation.person for conversation in log.conversations}
    alone = len(set(people.values())) == 1 and any(people.values())  # then sides are by session
    marks = {
        conversation.id: {
            f"session\x1f{conversation.of or conversation.id}",
            *_marks("" if alone else conversation.person, sessions[conversation.id], phrases),
        }
        for conversation in log.conversations
    }
    common: frozenset[str] = frozenset()
    if "rewarded" in kinds:
        heard = {conversation.id: list(_heard(conversation)) for conversation in log.conversations}
        common = _common(heard.values())
        for id, listed in heard.items():
            marks[id] |= {*listed} - common
    roots = tied(marks)
    sets = len(set(roots.values()))
    if sets < len(SPLITS):
        raise WrongFormat(
            f"{log.name} holds {len(sessions)} session{'s'[: len(sessions) != 1]}, which make {sets} set{'s'[: sets != 1]} that "
            f"share{'s'[: sets == 1]} no person and no sentence: nothing can be held out.",
            f"Give at least {len(SPLITS)}: one to train on, one to watch, one to measure on; better a hundred."
            + " Without a user of each line, sides are by session." * any(people.values()),
        )
    if "rewarded" in kinds:
        usable = {one.id for one, _, _ in rewarded(log)}
    else:
        usable = {id for id, session in sessions.items() if statements(session)}
    side_of = _sides(roots, usable)
    left_out = Counter(log.left_out)
    if phrases:
        left_out["sentences that stand in too many sessions to be asked about"] += len(phrases)
    threshold = fmean([reward for one, _, reward in rewarded(log) if side_of[one.id] == "train"] or [0.0])
    by_kind: dict[str, dict[str, list[Task]]] = {}
    for kind in dict.fromkeys(kinds):
        if kind == "rewarded":
            made = _to_imitate(log, side_of, threshold, common, left_out)
        else:
            made = _cloze(sessions, side_of, people, phrases, seed, distractors, log.name)
        by_kind[kind] = made
        if not all(made.values()):
            empty = next(split for split in SPLITS if not made[split])
            raise WrongFormat(
                f"{log.name}: there is no task of the kind {kind} on the {empty} side ({len(sessions)} sessions).",
                _missing(kind),
            )
    by_split = {split: tuple(task for made in by_kind.values() for task in made[split]) for split in SPLITS}
    cluster = {task.key: roots[_home(task)] for tasks in by_split.values() for task in tasks}
    whole = [conversation.id for conversation in log.conversations if not conversation.of]
    counts = Counter(side_of[id] for id in whole)
    asked = by_split["test"][:questions]
    report = LogReport(
        name=log.name,
        sessions=len(whole),
        people=len(set(people.values()) - {""}),
        dated=sum(bool(sessions[id].date) for id in whole),
        turns=sum(turn.speaker == "user" for session in sessions.values() for turn in session.turns),
        statements=sum(len(statements(session)) for session in sessions.values()),
        tied_sets=sets,
        sides={split: counts[split] for split in SPLITS},
        kinds=tuple(_measured(kind, made, sessions) for kind, made in by_kind.items()),
        measured=(len(asked), len({cluster[task.key] for task in asked})),
        rewards=_rewards(log, threshold),
        left_out={why: count for why, count in left_out.items() if count},
        unread=log.unread,
    )
    report = replace(report, verdict=tuple(_verdict(report, alone)))
    digest = hashlib.sha256()
    for split in SPLITS:
        for task in by_split[split]:
            digest.update(
                repr((split, task.key, task.input, task.answers, [session.id for session in task.sessions])).encode()
            )
    note = f"Tasks of the kinds {', '.join(by_kind)} from {len(whole)} sessions of {log.name}, split by session."
    return MadeTasks(OwnTasks(log.name, digest.hexdigest()[:16], by_split, cluster, note), report)


def _sides(roots: Mapping[str, str], usable: Collection[str]) -> dict[str, str]:
    """The side of each session; no side is empty of those that tasks can be made of, if there are three that are not tied."""
    by_root = {roots[id]: split for id, split in divided({id: {roots[id]} for id in usable})[0].items()}
    return {id: by_root.get(root) or side(root) for id, root in roots.items()}


def _phrases(sessions: Iterable[Session]) -> frozenset[str]:
    listed = list(sessions)
    often = Counter(words for session in listed for words in {statement.words for statement in statements(session)})
    bound = max(PHRASE_SESSIONS, PHRASE_SHARE * len(listed))
    return frozenset(words for words, count in often.items() if count > bound)


def _marks(person: str, session: Session, phrases: frozenset[str]) -> Iterator[str]:
    """What ties a session to others: its person, its statements, and how those read with something hidden."""
    if person:
        yield f"person\x1f{person}"
    for statement in statements(session):
        if statement.words in phrases:
            continue
        yield f"said\x1f{statement.words}"
        for _, start, end in spans(statement.text):
            yield f"cloze\x1f{' '.join(tokens(f'{statement.text[:start]} {BLANK} {statement.text[end:]}'))}"


def _heard(one: Conversation) -> Iterator[str]:
    """What else ties conversations where answers are imitated: how they begin, up to each message of the user; and each message
    of the user and answer of some words."""
    begun = hashlib.sha256()
    for message in one.messages:
        words = _normalised(message.text)
        if message.role == "user":
            begun.update(f"{words}\x1f".encode())
            yield f"begins\x1f{begun.hexdigest()}"
        if message.role in ("user", "assistant") and len(words.split()) >= TELLING:
            yield f"heard\x1f{words}"


def _normalised(text: str) -> str:
    return " ".join(tokens(text)) or text


def _common(heard: Collection[Sequence[str]]) -> frozenset[str]:
    """The marks in too many conversations that begin differently (in their first two questions), as a greeting is. A history that
    many lines repeat, or a question with many answers, is not among them."""
    begins: dict[str, set[str]] = defaultdict(set)
    for listed in heard:
        beginning = [each for each in listed if each.startswith("begins")][:2]
        for mark in listed:
            begins[mark].update(beginning[-1:])
    bound = max(PHRASE_SESSIONS, PHRASE_SHARE * len({each for found in begins.values() for each in found}))
    return frozenset(mark for mark, found in begins.items() if len(found) > bound)


def _cloze(
    sessions: Mapping[str, Session],
    side_of: Mapping[str, str],
    people: Mapping[str, str],
    phrases: frozenset[str],
    seed: int,
    distractors: int,
    name: str,
) -> dict[str, list[Task]]:
    """The tasks of each side, in an order that is drawn."""
    together: dict[tuple[str, str], list[Session]] = defaultdict(list)
    for id in sorted(sessions):
        together[side_of[id], people[id]].append(sessions[id])
    made: dict[str, list[Task]] = {split: [] for split in SPLITS}

    for (split, _), listed in together.items():
        if not any(turn.speaker == "user" for session in listed for turn in session.turns):
            continue
        tasks = cloze(listed, seed, MOST, later=True, distractors=distractors, source=f"{name}-cloze", split=split)
        made[split] += [task for task in tasks if " ".join(tokens(_restored(task))) not in phrases]
    return {split: sorted(tasks, key=lambda each: draw_order(seed, each.key))[:MOST] for split, tasks in made.items()}


def _restored(task: Task) -> str:
    return task.input.partition('"')[2].rpartition('"')[0].replace(BLANK, task.answers[0])


def _to_imitate(
    log: ChatLog, side_of: Mapping[str, str], threshold: float, common: frozenset[str], left_out: Counter[str]
) -> dict[str, list[Task]]:
    """Rows of the answers with more reward than the average, each with the conversation before it."""
    listed = list(rewarded(log))
    if not listed:
        raise WrongFormat(
            f"{log.name} has no rewards.",
            "Give answers a reward, score, rating or feedback; or train other kinds of tasks.",
        )
    if len({reward for *_, reward in listed}) == 1:
        raise WrongFormat(
            f"All {len(listed)} rewards in {log.name} are {listed[0][2]:g}: they do not say which answers are better.",
            "Keep the answers that were not liked in the log, too.",
        )
    made: dict[str, list[Task]] = {split: [] for split in SPLITS}
    for one, index, reward in listed:
        before = one.messages[:index]
        if reward <= threshold:
            continue
        if not before or before[-1].role == "assistant" or not any(each.role == "user" for each in before):
            left_out["rewarded answers that answer nothing"] += 1
            continue
        if sum(each.role == "user" for each in before) == 1 and common & {*_heard(replace(one, messages=before))}:
            left_out["rewarded answers to what begins too many conversations"] += 1
            continue
        answer = one.messages[index]
        asked = [{"role": "system", "content": answer.system}] if answer.system else []
        asked += [{"role": each.role, "content": each.text} for each in before]
        last = next(each.text for each in reversed(before) if each.role == "user")
        split = side_of[one.id]
        made[split].append(
            Task(
                key=f"rewarded/{one.id}/{index}",
                source=f"{log.name}-rewarded",
                input=last,
                answers=(answer.text,),
                verifier="token_f1",
                asked_at=one.time,
                tags={"type": "rewarded", "split": split},
                row={"prompt": asked, "reward": reward, "session": one.id},
            )
        )
    return {split: sorted(tasks, key=lambda each: draw_order(0, each.key)) for split, tasks in made.items()}


def _home(task: Task) -> str:
    """A session of the task; those of one task are on one side, and where they are not tied the first one stands for them."""
    return task.evidence[0] if task.evidence else str(task.row["session"])


# What is known before training.


def _measured(kind: str, made: Mapping[str, Sequence[Task]], sessions: Mapping[str, Session]) -> KindReport:
    held_out = [*made["dev"], *made["test"]]
    counts = {split: len(made[split]) for split in SPLITS}
    if kind == "rewarded":
        return KindReport(kind, counts)
    rules = _cloze_rules(made["train"], sessions)
    shortcuts = {name: fmean(verify(task, rule(task)) for task in held_out) for name, rule in rules.items()}
    return KindReport(kind, counts, len(held_out), shortcuts)


Rule = Callable[[Task], str]


def _cloze_rules(train: Sequence[Task], sessions: Mapping[str, Session]) -> dict[str, Rule]:
    common: dict[str, Counter[str]] = defaultdict(Counter)
    for task in train:
        common[task.tags["type"]][task.answers[0]] += 1

    def frequent(task: Task) -> str:
        return next((answer for answer, _ in common[task.tags["type"]].most_common(1)), "")

    def latest(task: Task) -> str:
        wanted = task.tags["type"].removeprefix("cloze-")
        for session in reversed(task.sessions):
            for sentence in reversed(statements(sessions[session.id])):
                for kind, start, end in reversed(spans(sentence.text)):
                    if kind == wanted:
                        return sentence.text[start:end]
        return ""

    return {"the most frequent answer of its kind": frequent, "the latest of its kind in memory": latest}


def _rewards(log: ChatLog, threshold: float) -> RewardReport:
    listed = list(rewarded(log))
    if not listed:
        return RewardReport(0)
    values = [reward for *_, reward in listed]
    by_session: dict[str, set[bool]] = defaultdict(set)
    for one, _, reward in listed:
        by_session[one.id].add(reward > threshold)
    return RewardReport(
        len(values),
        min(values),
        max(values),
        fmean(values),
        fmean(reward > threshold for reward in values),
        sum(len(value) == 2 for value in by_session.values()),
    )


def _missing(kind: str) -> str:
    if kind == "rewarded":
        return "Give more sessions in which an answer has more reward than the average."
    return (
        "It needs a sentence of the user in the first person, 6 to 40 words, with a name, a number or a date, on each side: "
        "give more sessions."
    )


def _verdict(report: LogReport, alone: bool) -> Iterator[str]:
    """What can and what cannot be learned from it, in sentences. alone: whether it is all of one person."""
    own = [kind for kind in report.kinds if kind.kind != "rewarded"]
    train = sum(kind.by_split["train"] for kind in report.kinds)
    if own:
        yield (
            "What can be learned: to use what memory shows (restore what was said). What cannot: "
            "facts of other conversations, or which answers people like."
        )
    else:
        yield (
            "What can be learned: to answer as the better rewarded answers do (imitation). What cannot: whether a new answer is "
            "better, since nobody rewarded it."
        )
    if alone:
        yield "Everything is of one person: what is measured are other sessions of that person, and nothing is said about others."
    if train < FEW:
        yield f"{train} tasks to train on are few: expect little."
    test, sets = report.measured
    yield (
        f"A run measures on {test} test tasks (questions), of {sets} sets that share no sentence: a difference below about "
        f"{1.96 * sqrt(0.5 / sets):.2f} may be chance."
    )
    if own:
        yield "Simple rules look for no sentence in memory: one that does may earn as much as has its answer in the evidence."
    if report.rewards.count and own:
        yield "These kinds do not use the rewards. kinds = rewarded imitates the answers that were rewarded."
