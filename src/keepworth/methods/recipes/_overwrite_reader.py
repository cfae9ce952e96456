"""OverwriteReader: reads a text of any length in a fixed window, rewriting one short memory after every section.

After "MemAgent: Reshaping Long-Context LLM with Multi-Conv RL-based Memory Agent" (arXiv 2507.02259), section 2: the model sees
the question, its memory and the next section, and its output becomes the new memory; at the end it answers from the question and
the memory alone. Every call is a context of its own, and the reward of the answer reaches all of them. Different for a small
model: two worked examples instead of an instruction, a memory of one line, and the answer on a line instead of in a box.
"""

from __future__ import annotations

import hashlib

from keepworth.base.text import as_line, as_text
from keepworth.records.episode import Observation
from keepworth.worlds.agent import Action, Caller, one_line

ROLE = "reader"
NOTHING = "(nothing yet)"
"""The memory before the first section, as written in a prompt."""

# (question, memory, section, new memory): in the first a fact is found, in the second one is kept.
_READINGS = (
    (
        "What is the name of my cat?",
        NOTHING,
        "My sister moved to Leeds. I adopted a cat, her name is Pepper.",
        "I adopted a cat, her name is Pepper.",
    ),
    (
        "How long is my longest run?",
        "My longest run is 9 miles.",
        "The new shoes are blue.",
        "My longest run is 9 miles.",
    ),
)
_ANSWERS = (
    ("I adopted a cat, her name is Pepper.", "What is the name of my cat?", "Pepper"),
    ("My longest run is 9 miles.", "How long is my longest run?", "9 miles"),
)


def reading(question: str, memory: str, section: str) -> str:
    """Returns the prompt that reads a section; it ends where the new memory begins."""
    return READING_HEAD + _reading(question, memory, section)


def answering(question: str, memory: str) -> str:
    """Returns the prompt that answers; it ends where the answer begins."""
    return ANSWERING_HEAD + _answering(question, memory)


def _reading(question: str, memory: str, section: str) -> str:
    return f"Question: {question}\nMemory: {memory}\nText: {section}\nNew memory:"


def _answering(question: str, memory: str) -> str:
    return f"Memory: {memory}\nQuestion: {question}\nAnswer:"


READING_HEAD = "".join(f"{_reading(q, m, s)} {new}\n\n" for q, m, s, new in _READINGS)
ANSWERING_HEAD = "".join(f"{_answering(q, m)} {a}\n\n" for m, q, a in _ANSWERS)
PROMPT_ID = f"overwrite_reader/v1-{hashlib.sha256((READING_HEAD + ANSWERING_HEAD).encode()).hexdigest()[:8]}"


class OverwriteReader:
    """The agent that overwrites its memory, which is cut at `memory_tokens`; an answer has at most `answer_tokens`."""

    def __init__(self, memory_tokens: int = 32, answer_tokens: int = 12) -> None:
        self.memory_tokens, self.answer_tokens = memory_tokens, answer_tokens
        self.memory = NOTHING

    async def act(self, observation: Observation, model: Caller) -> Action:
        question = as_line(observation.question)
        due = observation.answer_due
        if due:
            prompt = answering(question, as_text(self.memory))
        else:
            prompt = reading(question, as_text(self.memory), as_line(observation.text))
        action, _ = await one_line(
            model,
            model.encode(prompt),
            role=ROLE,
            prompt_id=f"{PROMPT_ID}/{'answer' if due else 'read'}",
            max_tokens=self.answer_tokens if due else self.memory_tokens,
            memory=memory_hash(self.memory),
        )
        if due:
            return action
        self.memory = action.text or NOTHING
        model.remembers(memory_hash(self.memory))
        return Action(self.memory)


class WholeReader:
    """The reader that stores every section word for word, and answers from all of them.

    It is the comparison for overwriting where the text fits the window; where it does not, its episodes end for lack of context.
    """

    def __init__(self, answer_tokens: int = 12) -> None:
        self.answer_tokens = answer_tokens
        self._read: list[str] = []

    async def act(self, observation: Observation, model: Caller) -> Action:
        if not observation.answer_due:
            self._read.append(as_line(observation.text))
            return Action("")
        memory = " ".join(self._read) or NOTHING
        prompt, tokens = model.encode(answering(as_line(observation.question), memory)), self.answer_tokens
        action, _ = await one_line(
            model, prompt, role=ROLE, prompt_id=f"{PROMPT_ID}/answer", max_tokens=tokens, memory=memory_hash(memory)
        )
        return action


def memory_hash(memory: str) -> str:
    """Returns the content hash of a memory, as segments store it."""
    return "empty" if memory == NOTHING else hashlib.sha256(memory.encode()).hexdigest()[:16]
