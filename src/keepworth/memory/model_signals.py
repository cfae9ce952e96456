"""What a user's next message says of the answer before it, by a chat model, where the rules of `signals` do not tell.

A model is asked only where an option says so (`Memory(model_signals=200)`, and `--model-signals 200` of `keepworth serve` and
`keepworth learn`), at most so many times in a day, and in a thread of its own, so that no call and no hook waits for it. What
it says is a signal of its own ("model-correction"), which can be rolled back alone.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from keepworth.memory.errors import InvalidFilter
from keepworth.memory.store import notes

if TYPE_CHECKING:
    from keepworth.memory.store.store import Store

_LOG = logging.getLogger("keepworth.memory")
CALLS = 200
"""The most calls in a day (UTC) for one memory, if not said otherwise."""
LONGEST = 1_000
"""The most characters of each text that the model reads."""
MOST_WAITING = 64
"""The most messages that wait for the model; of more, the oldest of whoever writes is dropped, or else the oldest of all."""
PATIENCE = 5.0
"""How many seconds a memory that is closed waits for an answer under way."""
LABELS = {
    "thanks": "model-thanks",
    "correction": "model-correction",
    "repetition": "model-repetition",
    "new subject": "",
    "none": "",
}
"""What the model may answer, and the signal that it stands for."""
INSTRUCTIONS = """A user asked for something, got an answer, and now writes again. What does the new message say of the answer?
thanks: it was good, it works, or the user is content
correction: it was wrong, does not work, or is not what was asked for
repetition: the user asks for the same once more
new subject: the user asks for something else
none: it says nothing of the answer
Reply with one of these five labels and nothing else."""
EXAMPLE = "Request: {before}\nAnswer: {answer}\nNew message: {message}\nLabel:"


class ReplyReader(Protocol):
    """A chat model, such as `keepworth.base.chat.ChatModel`."""

    def complete(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """Return the model's next message."""


@dataclass(frozen=True, slots=True)
class _Question:
    store: Store
    message: str
    before: str
    answer: str
    person: str
    then: Callable[[str], object]


class ModelSignals:
    """Asks a chat model what users' next messages say. It may serve several memories, and is thread-safe.

    Args:
        chat: The model.
        calls: The most calls in a day (UTC) for one memory, of which a named person gets at most half of those that others left.

    Raises:
        InvalidFilter: `calls` is no whole number of at least 1.
    """

    def __init__(self, chat: ReplyReader, calls: int = CALLS) -> None:
        if not isinstance(calls, int) or isinstance(calls, bool) or calls < 1:
            raise InvalidFilter(f"calls must be a whole number of at least 1, got {calls!r:.40}")
        self.chat, self.calls = chat, calls
        self._changed = threading.Condition()
        self._waiting: deque[_Question] = deque()
        self._asked: _Question | None = None
        self._thread: threading.Thread | None = None

    def read(self, store: Store, message: str, before: str = "", answer: str = "", person: str = "") -> str:
        """Return the signal in a user's next message by the model; "" where it says nothing, fails, or was asked often enough
        today.

        Args:
            store: The memory whose calls are counted.
            message: What the user writes now.
            before: The user's message before it; "" if unknown.
            answer: What was answered; "" if unknown.
            person: Who writes, who gets at most half of the calls that others left; "" if nobody is named.
        """
        if not notes.count_model_call(store, self.calls, person):
            return ""
        texts = {"message": message, "before": before or "(unknown)", "answer": answer or "(unknown)"}
        question = EXAMPLE.format(**{name: " ".join(text[:LONGEST].split()) for name, text in texts.items()})
        try:
            label = self.chat.complete(
                [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": question}]
            )
        except Exception as error:
            _LOG.warning("the model did not say what a message means, because %s: %s", type(error).__name__, error)
            return ""
        return LABELS.get(label.strip().strip("\"'`*.!").replace("-", " ").replace("_", " ").lower(), "")

    def read_later(
        self, store: Store, message: str, before: str, answer: str, person: str, then: Callable[[str], object]
    ) -> None:
        """Ask in a thread of its own, and call `then` with the signal if there is one.

        Args:
            store: The memory whose calls are counted.
            message: What the user writes now.
            before: The user's message before it; "" if unknown.
            answer: What was answered; "" if unknown.
            person: Who writes; "" if nobody is named.
            then: It takes the signal, in that thread.
        """
        with self._changed:
            if len(self._waiting) >= MOST_WAITING:
                of_person = (question for question in self._waiting if question.person == person)
                self._waiting.remove(next(of_person, self._waiting[0]))
            self._waiting.append(_Question(store, message, before, answer, person, then))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="keepworth-model-signals", daemon=True)
                self._thread.start()

    def wait(self, seconds: float = 60.0) -> bool:
        """Wait until no message waits for the model. Returns whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and self._asked is None, seconds)

    def leave(self, store: Store) -> None:
        """Drop what waits for a memory that is about to be closed, and give the answer under way a moment."""
        with self._changed:
            for question in [question for question in self._waiting if question.store is store]:
                self._waiting.remove(question)
            self._changed.wait_for(lambda: self._asked is None or self._asked.store is not store, PATIENCE)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._asked = None
                self._changed.notify_all()
                if not self._waiting:
                    self._thread = None
                    return
                question = self._asked = self._waiting.popleft()
            try:
                if name := self.read(
                    question.store, question.message, question.before, question.answer, question.person
                ):
                    question.then(name)
            except Exception as error:  # the episode was erased or the memory closed meanwhile
                _LOG.warning("what a model said of a message was not taken: %s: %s", type(error).__name__, error)


def load_model_signals(given: ModelSignals | int) -> ModelSignals | None:
    """Return what asks a model; None for 0.

    Args:
        given: What asks it, or the most calls in a day to OPENAI_MODEL behind OPENAI_BASE_URL.

    Raises:
        ChatError: One of the two is not set.
        InvalidFilter: It is neither a `ModelSignals` nor a whole number of at least 0.
    """
    from keepworth.base.chat import from_environment, model_in_environment

    if isinstance(given, ModelSignals):
        return given
    if not isinstance(given, int) or isinstance(given, bool) or given < 0:
        raise InvalidFilter(
            f"model_signals={given!r:.40} is no number: give the most calls to a model in a day, or a ModelSignals"
        )
    if given == 0:
        return None
    return ModelSignals(from_environment(model_in_environment("model_signals"), "model_signals"), given)
