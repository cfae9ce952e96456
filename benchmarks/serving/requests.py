"""What is asked: questions of LongMemEval's training side behind a note that answers them, as an agent's answerer sends them.

All prompts begin with the same instructions. A note is the evidence, cut to so many tokens; questions whose note then no longer
holds the answer are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from keepworth.episodes.model import Tokens
from keepworth.models.inprocess import InProcessModel

MOST_TOKENS, NOTE_TOKENS = 32, 80
BEGINNING = (
    "Answer each question from the note before it, in one short sentence.\n\n"
    "Note: I moved to Leeds in May, and my new flat is on the fourth floor. Can you tell me how to get a bed up there?\n"
    "Question: Which floor is my flat on?\n"
    "Answer: Your flat is on the fourth floor.\n\n"
    "Note: My sister gave me a blue kettle for my birthday, which was on Sunday.\n"
    "Question: When was my birthday?\n"
    "Answer: Your birthday was on Sunday.\n\n"
)


@dataclass(frozen=True, slots=True)
class Question:
    """gold: answers that count as right."""

    prompt: Tokens
    gold: tuple[str, ...]


def questions(model: InProcessModel) -> list[Question]:
    from keepworth.tasks.longmemeval import longmemeval
    from keepworth.tasks.verifiers import contains_answer

    beginning, asked = model.encode(BEGINNING), []
    for task in longmemeval("train", extractive=True):
        told = " ".join(turn.text for each in task.sessions for turn in each.turns if turn.evidence)
        note = model.encode_continuation(f"Note: {' '.join(told.split())}")[:NOTE_TOKENS]
        if contains_answer(model.decode(note), task.answers):
            rest = model.encode_continuation(f"\nQuestion: {task.input}\nAnswer:")
            asked.append(Question((*beginning, *note, *rest), task.answers))
    return asked
