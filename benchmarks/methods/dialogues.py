"""Dated dialogues of people, as the package `chitchat-dataset` carries them (0.9.0, MIT; Brigham Young University, 2018).

    pip install --no-deps chitchat-dataset==0.9.0

People who talked often, each with their conversations in order of time: what the person says is of "user", what others say of
"partner". People are parted by a fixed draw, and who teaches or tunes keeps no conversation with one who is tested.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.methods.write import package
from keepworth.episodes.episode import Session, Turn
from keepworth.tasks.splits import draw_order

INSTALL = "pip install --no-deps chitchat-dataset==0.9.0"
DATA = "chitchat-dataset 0.9.0 (MIT), read where it lies"
OFTEN = 20
"""Conversations of a person, at least."""
SHARES = {"train": 0.35, "dev": 0.15, "test": 0.5}


@dataclass(frozen=True, slots=True)
class Person:
    id: str
    sessions: tuple[Session, ...]


def load(latest: int, path: Path | None = None) -> dict[str, list[Person]]:
    """By side, the people of the package, or of a file in its form, with so many of their latest conversations."""
    path = path or package("chitchat_dataset", INSTALL) / "dataset.json"
    return part(json.loads(path.read_text(encoding="utf-8")), latest)


def part(conversations: Mapping[str, Any], latest: int, often: int = OFTEN) -> dict[str, list[Person]]:
    """The people with at least so many conversations, by side."""
    talks = defaultdict(list)
    for id, conversation in conversations.items():
        blocks = [block for block in conversation["messages"] if block]
        speakers = {message["sender"] for block in blocks for message in block}
        for speaker in speakers:
            talks[speaker].append((blocks[0][0]["timestamp"][:16], id, blocks, speakers - {speaker}))
    people = sorted((id for id, of in talks.items() if len(of) >= often), key=lambda id: draw_order("side", id))
    ends = [round(len(people) * share) for share in (SHARES["train"], SHARES["train"] + SHARES["dev"])]
    sides = {"train": people[: ends[0]], "dev": people[ends[0] : ends[1]], "test": people[ends[1] :]}
    made: dict[str, list[Person]] = {}
    for side, ids in sides.items():
        hidden = {other for name, others in sides.items() if name != side != "test" for other in others}
        made[side] = []
        for id in ids:
            recent = sorted((talk[:3] for talk in talks[id] if not talk[3] & hidden), key=lambda talk: talk[:2])[
                -latest:
            ]
            sessions = tuple(Session(key, date, tuple(_turns(blocks, id))) for date, key, blocks in recent)
            made[side].append(Person(id, sessions))
    return made


def _turns(blocks: list[list[dict[str, str]]], person: str) -> list[Turn]:
    """One turn for each run of messages of one speaker."""
    turns: list[Turn] = []
    for block in blocks:
        speaker = "user" if block[0]["sender"] == person else "partner"
        text = " ".join(message["text"].strip() for message in block)
        turns.append(Turn(speaker, text, len(turns), date=block[0]["timestamp"][:16]))
    return turns
