"""Stale answers with and without rules that find facts: where things change, and in LongMemEval's knowledge updates.

    python -m benchmarks.agents.facts --people 40 --json benchmarks/agents/facts.json

An arm keeps what people say in one memory: "raw" keeps whole messages but questions and a word or two, as gateways did before
there were rules; "rules" is what a memory does by itself. Then each thing that changed is asked for, and the first eight items
are looked at. An answer is stale where the first item says the old value and not the new one. Of what did not change, it is
counted what gave way all the same. Wordings and attributes are each of one side (`benchmarks.agents.changes`); nothing was tuned
on "held-out".

    OPENAI_BASE_URL=... OPENAI_MODEL=... python -m benchmarks.agents.facts --arms model --people 8 --seeds 1 --json ...

puts a chat model in the place of the rules.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from statistics import fmean
from typing import Any, TypeVar

from benchmarks.agents.changes import DEV, HELD_OUT, REWORDED, SEEN, PlantedConversation, conversations
from benchmarks.memory.engine import machine
from benchmarks.record import arguments, save
from keepworth.base.chat import from_environment
from keepworth.base.metrics import tokens
from keepworth.base.statistics import paired_difference, pooled_estimate
from keepworth.memory.item import Item
from keepworth.memory.memory import Memory
from keepworth.memory.speech import says_something
from keepworth.methods.writers._claims import stems
from keepworth.methods.writers.facts import Facts, comparison, extractor
from keepworth.records.episode import Task
from keepworth.worlds.data_sets.longmemeval import longmemeval
from keepworth.worlds.splits import SPLITS

TOP, ENCODER, DISTRACTORS = 8, "minilm", 3
ARMS = ("raw", "rules", "model")
LONGEST_REPLY = 64
"""Tokens of an answer of the chat model: a message of these conversations holds three sentences."""
CELLS = (
    ("dev attributes, dev wordings", DEV, "dev"),
    ("dev attributes, seen wordings", DEV, "seen"),
    ("seen attributes, dev wordings", SEEN, "dev"),
    ("seen attributes, seen wordings", SEEN, "seen"),
    ("dev attributes, held-out wordings", REWORDED, "held-out"),
    ("held-out attributes, held-out wordings", HELD_OUT, "held-out"),
)
FIRST_DAY = datetime(2026, 1, 5, 9)
Scores = dict[str, dict[str, list[float]]]
Case = TypeVar("Case")


def opened(arm: str) -> Memory:
    # What is shown is what is found: nothing here is rewarded.
    if arm != "model":
        return Memory(encoder=ENCODER, policy=None, log="off", writer="rules")
    chat = from_environment(os.environ.get("OPENAI_MODEL", ""), "the arm model", max_tokens=LONGEST_REPLY)
    return Memory(encoder=ENCODER, policy=None, log="off", writer=Facts(extractor(chat), comparison(chat)))


def keep(memory: Memory, arm: str, text: str, role: str, at: str, user: str) -> list[Item]:
    """What the arm makes of a message."""
    if arm == "rules" or (arm == "model" and role == "user"):
        return memory.add([{"role": role, "content": text, "said_at": at}], infer=True, user_id=user)
    if role != "user" or arm == "model" or not says_something(text):
        return []
    return [memory.add(text, user_id=user, event_time=at)]


def plain(text: str) -> str:
    return " ".join(tokens(re.sub(r"\s*\([\d\- to]+\)", "", text)))


def planted(memory: Memory, arm: str, talk: PlantedConversation, scores: Scores) -> None:
    """Plays one conversation, then asks for what changed. Each score is a list of one number for each case."""
    user = talk.person
    born: dict[str, int] = {}
    values: dict[str, str] = {}
    for number, (day, role, text) in enumerate(talk.messages):
        at = (FIRST_DAY + timedelta(days=day, seconds=number)).isoformat()
        for item in keep(memory, arm, text, role, at, user):
            born.setdefault(item.id, number)
            values.setdefault(item.id, item.text)
    current = {item.id: item for item in memory.get_all(user_id=user, limit=1000)}
    texts = [text for _, _, text in talk.messages]
    facts = [plain(fact) for fact in talk.facts]
    for item in current.values():
        words = plain(item.text)
        about = [fact for fact in facts if _about(words, fact)]
        share = min(1.0, sum(len(fact.split()) for fact in about) / max(1, len(words.split())))
        scores["kept items that hold a fact"][user].append(float(bool(about)))
        scores["kept words that belong to a fact"][user].append(share)
    for fact in talk.facts:
        index = next(number for number, text in enumerate(texts) if fact in text)
        if "stable" in talk.kinds[fact]:
            there = any(born[id] == index and _about(plain(item.text), plain(fact)) for id, item in current.items())
            scores["facts that did not change and are there"][user].append(float(there))
        if talk.kinds[fact] != "change":
            its = [id for id, text in values.items() if born[id] == index and _about(plain(text), plain(fact))]
            for id in its[:1]:
                words = stems(values[id])
                stands = id in current or any(words <= stems(item.text) for item in current.values())
                scores["facts that did not change and gave way"][user].append(float(not stands))
    for change in talk.changes:
        first = next(number for number, text in enumerate(texts) if change.first in text)
        second = next(number for number, text in enumerate(texts) if change.second in text and number > first)
        stale = {id for id, item in current.items() if born[id] == first and change.stale in item.text}
        new = {
            id for id, item in current.items() if born[id] == second and (change.ended or change.current in item.text)
        }
        hits = [hit.id for hit in memory.search(change.question, user_id=user, top_k=TOP)]
        scores["stale answers"][user].append(float(bool(hits) and hits[0] in stale))
        scores["current answers"][user].append(float(bool(hits) and hits[0] in new))
        scores["stale item among the first 8"][user].append(float(bool(stale & set(hits))))
        scores["both among the first 8"][user].append(float(bool(stale & set(hits)) and bool(new & set(hits))))
        scores["current item among the first 8"][user].append(float(bool(new & set(hits))))
        scores["changes that are kept"][user].append(float(bool(new)))


def _about(words: str, fact: str) -> bool:
    return words in fact or fact in words


def updates(memory: Memory, arm: str, task: Task, scores: Scores) -> None:
    """A question of LongMemEval whose answer changed: its evidence turns in order of time, the last of them being current."""
    user = task.key
    marked: list[tuple[str, int]] = []
    born: dict[str, tuple[str, int]] = {}
    texts: dict[tuple[str, int], str] = {}
    for session in sorted(task.sessions, key=lambda session: (session.date, session.id)):
        for turn in session.turns:
            place = (session.id, turn.index)
            if turn.evidence:
                marked.append(place)
            texts[place] = turn.text
            role = "user" if turn.speaker == "user" else "assistant"
            for item in keep(memory, arm, turn.text, role, session.date_of(turn), user):
                born.setdefault(item.id, place)
    if len(marked) < 2:
        return
    asked = set(tokens(task.input))
    wanted = {word for answer in task.answers for word in tokens(answer)}
    current = {item.id: item for item in memory.get_all(user_id=user, limit=10_000)}

    def of(place: tuple[str, int], words: set[str]) -> set[str]:
        """The items of a turn that share most of these words: a turn may say more than what is asked for."""
        shared = {id: len(words & set(tokens(item.text))) for id, item in current.items() if born.get(id) == place}
        most = max(shared.values(), default=0)
        return {id for id, count in shared.items() if most and 2 * count >= most}

    new = of(marked[-1], wanted | asked)
    old = set().union(*(of(place, asked) for place in marked[:-1])) - new
    hits = [hit.id for hit in memory.search(task.input, user_id=user, top_k=TOP)]
    first = next((id for id in hits if id in new | old), "")
    scores["stale evidence before current"][user].append(float(first in old))
    scores["current evidence before stale"][user].append(float(first in new))
    scores["both among the first 8"][user].append(float(bool(old & set(hits)) and bool(new & set(hits))))
    scores["current evidence among the first 8"][user].append(float(bool(new & set(hits))))
    scores["current evidence is kept"][user].append(float(bool(new)))
    scores["stale evidence is kept"][user].append(float(bool(old)))
    scores["items kept"][user].append(float(len(current)))
    scores["items that gave way"][user].append(float(len(born) - len(current)))
    scores["words among the first 8"][user].append(
        float(sum(len(current[id].text.split()) for id in hits if id in current))
    )


def measured(
    name: str, play: Callable[[Memory, str, Case, Scores], None], cases: Sequence[Case], arms: Sequence[str]
) -> dict[str, Any]:
    """The arms over the same cases, with their differences from the first, paired by person."""
    by_arm: dict[str, Scores] = {}
    row: dict[str, Any] = {}
    for arm in arms:
        by_arm[arm] = defaultdict(lambda: defaultdict(list))
        with opened(arm) as memory:
            for case in cases:
                play(memory, arm, case, by_arm[arm])
            failed = len(memory.get_all(where={"extraction": "failed"}))
        if arm == "model":
            row["messages that the model failed at"] = failed
        row[arm] = {key: _estimated(cell, key) for key, cell in by_arm[arm].items()}
        print(name, arm, {key: round(cell["mean"], 3) for key, cell in row[arm].items()}, failed, flush=True)
    first, *others = arms
    for arm in others:
        row[f"{arm} less {first}"] = {
            score: _difference(score, by_arm[first][score], by_arm[arm][score])
            for score in by_arm[first]
            if score.startswith(("stale", "current", "both"))
        }
    return row


def _difference(name: str, before: dict[str, list[float]], after: dict[str, list[float]]) -> dict[str, Any]:
    people = list(before)
    change = [fmean(after[person]) - fmean(before[person]) for person in people]
    return asdict(paired_difference(name, change, clusters=people))


def _estimated(cell: dict[str, list[float]], name: str) -> dict[str, Any]:
    values = [value for of_person in cell.values() for value in of_person]
    people = [person for person, of_person in cell.items() for _ in of_person]
    within = None if name.startswith(("items", "words")) else (0.0, 1.0)
    return {**asdict(pooled_estimate(values, people, within=within)), "cases": len(values)}


def main(argv: Sequence[str] | None = None) -> None:
    parser = arguments(__doc__)
    parser.add_argument("--people", type=int, default=40, help="conversations for each cell and seed")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--questions", type=int, default=-1, help="of LongMemEval; -1 for all")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS[:2])
    parser.add_argument("--cells", nargs="*", choices=[name for name, _, _ in CELLS], help="all where none is named")
    options = parser.parse_args(argv)
    result: dict[str, Any] = {
        "machine": machine(),
        "people": options.people,
        "seeds": options.seeds,
        "encoder": ENCODER,
        "planted": {},
    }
    for name, attributes, wording in CELLS:
        if options.cells and name not in options.cells:
            continue
        talks = [
            talk for seed in range(options.seeds) for talk in conversations(attributes, wording, options.people, seed)
        ]
        asked = sum(role == "user" for talk in talks for _, role, _ in talk.messages)
        result["planted"][name] = {"messages": asked, **measured(name, planted, talks, options.arms)}
    tasks = [
        task
        for split in SPLITS
        for task in longmemeval(split, types=("knowledge-update",), abstention=False, distractors=DISTRACTORS)
    ][: options.questions if options.questions >= 0 else None]

    if tasks:
        result["longmemeval"] = {
            "questions": len(tasks),
            "distractors": DISTRACTORS,
            **measured("longmemeval", updates, tasks, options.arms),
        }
    save(options.json, result)


if __name__ == "__main__":
    main()
