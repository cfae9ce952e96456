"""Readers, which answer from what a memory shows: a model in this process, or one behind an OpenAI-compatible URL."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from keepworth.base.errors import KeepworthError
from keepworth.base.line_file import append_lines, read_lines
from keepworth.base.model_errors import NoWholeAnswer
from keepworth.base.text import as_line
from keepworth.evaluation.harness import BenchmarkReader, Played, plays_of

if TYPE_CHECKING:
    from keepworth.records.episode import Task

Query = TypeVar("Query")
PROMPT = """Answer the question from the memory. Give the answer alone, as short as it can be.

Memory:
{memory}

Question: {question}"""
CHOICE = """{options}

Give the number of the right option alone."""
CHOSEN_BY = "number or text"
"""The rule that reads an option from an answer, as part of the reader's identity: another rule would give other answers."""
CHARACTERS = 4
"""Characters counted as one token of the budget, for a model whose tokenizer is not available."""


def open_reader(reader: str, model: str = "", key_variable: str = "") -> BenchmarkReader:
    """Returns a reader.

    Args:
        reader: A model's name or folder, or a URL.
        model: The model's name at that URL.
        key_variable: The environment variable that holds its key.

    Raises:
        KeepworthError: A URL without a model, or a missing extra or model.
    """
    if reader.startswith(("http://", "https://")):
        if not model:
            raise KeepworthError("an endpoint serves several models.", "Name one: --set model=NAME")
        from keepworth.base.chat import ChatModel

        chat = ChatModel(reader, model, key_variable=key_variable, max_tokens=256)
        return ChatReader(chat, f"{model}@{reader}")
    from keepworth.base.extras import require

    require("llm", "a reader in this process")
    from keepworth.base.model_files import ModelKind, path_of
    from keepworth.models.inprocess import InProcessModel
    from keepworth.worlds.answerer import ModelReader

    return ModelReader(InProcessModel.load(path_of(reader, kind=ModelKind.LANGUAGE), name=reader))


class ChatReader:
    """A chat model as a reader. `complete` maps a user message to the assistant's text."""

    room = 8000

    def __init__(self, complete: Callable[[str], str], name: str) -> None:
        self._complete, self._name = complete, name
        self._known: dict[str, str] = {}
        self.unnamed = 0
        """The number of answers that named none of the options."""

    @property
    def identity(self) -> str:
        return f"{self._name} chat-{hashlib.sha256((PROMPT + CHOICE + CHOSEN_BY).encode()).hexdigest()[:8]}"

    def tokens(self, text: str) -> int:
        return -(-len(text) // CHARACTERS)

    def answers(self, queries: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
        return [self._ask(_prompt(question, memories)).strip() for question, memories in queries]

    def choices(self, queries: Sequence[tuple[str, Sequence[str], Sequence[str]]]) -> list[int]:
        """Returns the index of the option that each answer names; -1, which is counted in `unnamed`, where it names none."""
        picked = []
        for question, memories, options in queries:
            listed = "\n".join(f"{number}. {as_line(option)}" for number, option in enumerate(options, start=1))
            reply = self._ask(f"{_prompt(question, memories)}\n\n{CHOICE.format(options=listed)}")
            pick = choose_option(reply, options)
            self.unnamed += pick is None
            picked.append(-1 if pick is None else pick)
        return picked

    def _ask(self, prompt: str) -> str:
        if prompt not in self._known:
            try:
                self._known[prompt] = self._complete(prompt)
            except NoWholeAnswer as problem:
                # An empty or truncated answer is scored as it is, so that the remaining questions are still asked.
                self._known[prompt] = problem.text
        return self._known[prompt]


def choose_option(answer: str, options: Sequence[str]) -> int | None:
    """Returns the index of the option that an answer names; None where it names none, or several.

    It may name the option by its number alone or at the start ("2", "2. Leeds"), as "option 2", by its text, or by the only
    number of an option anywhere in the answer."""
    words = _words(answer)
    places = {str(index): index - 1 for index in range(1, len(options) + 1)}
    if words in places:
        return places[words]
    texts = [_words(option) for option in options]
    for form, choices in ((answer.strip(), list(options)), (words, texts)):
        if choices.count(form) == 1:
            return choices.index(form)
    first = re.match(r"\W*(\d+)\s*[.):,;-](?![\d-])", answer) or re.search(r"\boption\W+(\d+)", answer, re.IGNORECASE)
    if first and first[1] in places:
        return places[first[1]]
    # If one option is part of another, the longer one is meant. A number refers to the option of this number.
    matches = [index for index, text in enumerate(texts) if text and not text.isdigit() and f" {text} " in f" {words} "]
    longest = [
        index for index in matches if not any(index != o and f" {texts[index]} " in f" {texts[o]} " for o in matches)
    ]
    if len(longest) == 1:
        return longest[0]
    alone = re.findall(r"(?<![\w.,])\d+(?![.,]?\w)", answer)
    numbers = {places[number] for number in alone if number in places}
    return numbers.pop() if not longest and len(numbers) == 1 else None


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


def _prompt(question: str, memories: Sequence[str]) -> str:
    lines = "\n".join(f"- {as_line(text)}" for text in memories) or "(empty)"
    return PROMPT.format(memory=lines, question=as_line(question))


class KeptAnswers:
    """Wraps a reader and caches its answers in a folder. A question with the same memories is asked once, for all systems and
    runs. `at_once` is how many are asked before they are stored; 1 where each costs money and the next may fail."""

    def __init__(self, reader: BenchmarkReader, folder: Path, at_once: int = 1) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        name = hashlib.sha256(reader.identity.encode()).hexdigest()[:16]
        self._reader, self._file, self._at_once = reader, folder / f"answers-{name}.jsonl", at_once
        self._known = {record["key"]: record["answer"] for record in read_lines(self._file)}
        self.identity, self.room, self.tokens = reader.identity, reader.room, reader.tokens
        self.plays = None if plays_of(reader) is None else self._play

    def answers(self, queries: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
        keys = [_key(question, memories) for question, memories in queries]
        return self._cached(keys, queries, self._reader.answers)

    def choices(self, queries: Sequence[tuple[str, Sequence[str], Sequence[str]]]) -> list[int]:
        keys = [_key(question, (*memories, "\x1d", *options)) for question, memories, options in queries]
        picks = self._cached(keys, queries, lambda some: [str(pick) for pick in self._reader.choices(some)])
        return [int(pick) for pick in picks]

    def _play(self, queries: Sequence[tuple[Task, Sequence[str]]]) -> list[Played]:
        plays = plays_of(self._reader)
        assert plays is not None
        keys = [_key(task.key, ("\x1d", *texts)) for task, texts in queries]
        fresh = {key: query for key, query in zip(keys, queries, strict=True) if key not in self._known}
        failed = dict[str, Played]()
        names = list(fresh)
        for start in range(0, len(names), self._at_once):
            some = names[start : start + self._at_once]
            for key, played in zip(some, plays([fresh[key] for key in some]), strict=True):
                if played.error:  # it may not fail again
                    failed[key] = played
                    continue
                self._known[key] = json.dumps([played.answer, dict(played.scores)])
                append_lines(self._file, [{"key": key, "answer": self._known[key]}])
        return [failed.get(key) or Played(*json.loads(self._known[key])) for key in keys]

    def _cached(
        self, keys: Sequence[str], queries: Sequence[Query], ask: Callable[[list[Query]], list[str]]
    ) -> list[str]:
        fresh = {key: query for key, query in zip(keys, queries, strict=True) if key not in self._known}
        names = list(fresh)
        for start in range(0, len(names), self._at_once):
            some = names[start : start + self._at_once]
            answers = dict(zip(some, ask([fresh[key] for key in some]), strict=True))
            self._known |= answers
            append_lines(self._file, [{"key": key, "answer": answer} for key, answer in answers.items()])
        return [self._known[key] for key in keys]


def _key(question: str, texts: Sequence[str]) -> str:
    return hashlib.sha256("\x1f".join((question, *texts)).encode("utf-8", "surrogatepass")).hexdigest()
