"""What is kept of conversations by the default writer, beside whole messages: is what later questions need found, and how long is
what is shown?

    python -m benchmarks.memory.said --data DATA --conversations 2 --questions 60
    python -m benchmarks.memory.said --data DATA --json benchmarks/memory/said.json

DATA is a folder with LoCoMo (`locomo/locomo10.json.gz`, not for commercial use, so no text of it is kept here) and LongMemEval
(`longmemeval/longmemeval_oracle.json.gz`). Everything that anybody says is stored: as whole messages, and as the notes of
`Statements(assistant=True)`, which may replace one another. Questions of LoCoMo are asked of the memory of their conversation,
those of LongMemEval of one that holds the sessions of `--together` questions. Recall is the share of a question's marked turns of
which something is among the first five; tokens are the words and signs
of the five texts.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.memory.engine import machine
from benchmarks.record import arguments, save
from keepworth.base.statistics import paired_difference
from keepworth.memory.by_name import encoder
from keepworth.memory.item import Item
from keepworth.memory.memory import Memory
from keepworth.methods.writers.facts import Facts
from keepworth.methods.writers.statements import Statements
from keepworth.records.model import Encoder

FIRST, ENCODER = 5, "minilm"
Place = tuple[str, int]
Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Talk:
    """Sessions of messages, and questions, each with the places (session, turn) of its evidence."""

    name: str
    sessions: list[tuple[str, list[Message]]]
    questions: list[tuple[str, frozenset[Place]]]


def read(path: Path) -> Any:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return json.load(file)


def locomo(data: Path, conversations: int) -> Iterator[Talk]:
    for number, row in enumerate(read(data / "locomo" / "locomo10.json.gz")[:conversations]):
        talk, sessions = row["conversation"], []
        for key in [key for key in talk if re.fullmatch(r"session_\d+", key)]:
            at = datetime.strptime(talk[f"{key}_date_time"], "%I:%M %p on %d %B, %Y").isoformat()
            messages = [
                {
                    "role": turn["speaker"],
                    "content": turn["text"] + (f" [{turn['blip_caption']}]" if turn.get("blip_caption") else ""),
                    "said_at": at,
                }
                for turn in talk[key]
            ]
            sessions.append((key.removeprefix("session_"), messages))
        questions = []
        for row_of_question in row["qa"]:
            places = [re.findall(r"\d+", mark) for mark in row_of_question["evidence"]]
            marked = frozenset((place[0], int(place[1]) - 1) for place in places if len(place) == 2)
            if marked and row_of_question["category"] != 5:
                questions.append((row_of_question["question"], marked))
        yield Talk(f"locomo {number}", sessions, questions)


def longmemeval(data: Path, questions: int, together: int) -> Iterator[Talk]:
    rows = read(data / "longmemeval" / "longmemeval_oracle.json.gz")
    random.Random(7).shuffle(rows)
    rows = [row for row in rows if not row["question_id"].endswith("_abs")][:questions]
    for start in range(0, len(rows), together):
        sessions: dict[str, tuple[str, list[Message]]] = {}
        asked = []
        for row in rows[start : start + together]:
            marked = set()
            given = zip(row["haystack_session_ids"], row["haystack_dates"], row["haystack_sessions"], strict=True)
            for id, date, turns in given:
                at = datetime.strptime(re.sub(r" \(\w+\)", "", date), "%Y/%m/%d %H:%M").isoformat()
                kept = [{"role": turn["role"], "content": turn["content"], "said_at": at} for turn in turns]
                sessions.setdefault(id, (at, kept))
                marked |= {(id, number) for number, turn in enumerate(turns) if turn.get("has_answer")}
            if marked:
                asked.append((row["question"], frozenset(marked)))
        in_time = sorted(sessions.items(), key=lambda pair: pair[1][0])
        yield Talk(f"longmemeval {start}", [(id, messages) for id, (_, messages) in in_time], asked)


def keep_whole(memory: Memory, session: str, messages: Sequence[Message]) -> list[Item]:
    kept = []
    for number, message in enumerate(messages):
        name = "" if message["role"] in ("user", "assistant") else f"{message['role']}: "
        if message["content"].strip():
            item = memory.add(
                f"{name}{message['content']}", event_time=message["said_at"], metadata={"turn": number}, repeat=True
            )
            kept.append(item)
    return kept


def keep_written(memory: Memory, session: str, messages: Sequence[Message]) -> list[Item]:
    return memory.add(messages, infer=True)


ARMS: dict[str, tuple[Any, Callable[[Memory, str, Sequence[Message]], list[Item]]]] = {
    "whole messages": (None, keep_whole),
    "statements": (Statements(assistant=True), keep_written),
    "statements that replace nothing": (Statements(assistant=True, updates=False), keep_written),
    "statements and facts by rules": (Statements(assistant=True, facts=Facts()), keep_written),
    "facts by rules": (Facts(), keep_written),
}


def tokens(text: str) -> int:
    return len(re.findall(r"\w+|[^\w\s]", text))


def measure(talk: Talk, arm: str, by: Encoder) -> dict[str, Any]:
    """Returns recall and tokens of each question, and the size and the cost of what was kept."""
    writer, keep = ARMS[arm]
    with Memory(encoder=by, writer=writer, policy=None, log="off") as memory:
        begun = time.process_time()
        places: dict[str, Place] = {}
        for session, messages in talk.sessions:
            for item in keep(memory, session, messages):
                turn = item.metadata["turn"] if writer is None else item.provenance.turn
                places.setdefault(item.id, (session, turn))
        spent = time.process_time() - begun
        items = memory.get_all(limit=1_000_000)
        recall, shown = [], []
        for question, marked in talk.questions:
            hits = memory.search(question, top_k=FIRST)
            recall.append(len(marked & {places.get(hit.id) for hit in hits}) / len(marked))
            shown.append(float(sum(tokens(hit.text) for hit in hits)))
        kept_tokens = sum(tokens(item.text) for item in items)
        return {"recall": recall, "tokens": shown, "items": len(items), "kept": kept_tokens, "seconds": spent}


def main(argv: Sequence[str] | None = None) -> None:
    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--conversations", type=int, default=10, help="of LoCoMo")
    parser.add_argument("--questions", type=int, default=470, help="of LongMemEval")
    parser.add_argument(
        "--together", type=int, default=10, help="questions of LongMemEval whose sessions are one memory"
    )
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS)[:3])
    options = parser.parse_args(argv)
    by = encoder(ENCODER)
    record: dict[str, Any] = {"machine": machine(), "encoder": ENCODER, "first": FIRST}
    sets = {
        "locomo": list(locomo(options.data, options.conversations)),
        "longmemeval": list(longmemeval(options.data, options.questions, options.together)),
    }
    for name, talks in ((name, talks) for name, talks in sets.items() if talks):
        measured = {arm: [measure(talk, arm, by) for talk in talks] for arm in options.arms}
        rows: dict[str, Any] = {}
        base = options.arms[0]
        flat = {
            (arm, score): [value for talk in measured[arm] for value in talk[score]]
            for arm in options.arms
            for score in ("recall", "tokens")
        }
        by_talk = name == "locomo" and len(talks) > 2
        clusters = [talk.name if by_talk else question for talk in talks for question, _ in talk.questions]
        for arm in options.arms:
            recall, shown = flat[arm, "recall"], flat[arm, "tokens"]
            change = [new - old for new, old in zip(recall, flat[base, "recall"], strict=True)]
            rows[arm] = {
                "questions": len(recall),
                "recall at 5": round(fmean(recall), 4),
                "tokens shown": round(fmean(shown), 1),
                "tokens against whole": round(fmean(shown) / fmean(flat[base, "tokens"]), 3),
                "items": sum(talk["items"] for talk in measured[arm]),
                "tokens kept": sum(talk["kept"] for talk in measured[arm]),
                "seconds of processor": round(sum(talk["seconds"] for talk in measured[arm]), 1),
                "recall less whole messages": asdict(paired_difference("recall", change, clusters=clusters)),
            }
            print(
                name,
                arm,
                {key: value for key, value in rows[arm].items() if key != "recall less whole messages"},
                flush=True,
            )
        record[name] = rows
    save(options.json, record)


if __name__ == "__main__":
    main()
