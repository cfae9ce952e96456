"""What tests of the memory do again and again."""

from __future__ import annotations

import contextlib
import resource
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
from typer.testing import CliRunner

from keepworth.cli.memory import app
from keepworth.memory.by_name import policy
from keepworth.memory.choose.experience import Experience
from keepworth.memory.choose.pool import Pool
from keepworth.memory.choose.slots import Finished, Policy, Use
from keepworth.memory.memory import Memory
from keepworth.memory.store.connection import select
from tests.memory.stub_encoder import WordEncoder as WordEncoder

ACTIONS = ("refund", "replace", "escalate")


def texts(memory: Memory, **options: Any) -> list[str]:
    return [item.text for item in memory.get_all(**options)]


def finds(memory: Any, query: str, *rest: Any, **options: Any) -> list[str]:
    """The texts of what a memory, an episode or a bank finds."""
    return [hit.text for hit in memory.search(query, *rest, **options)]


def recall(
    experience: Experience,
    goal: str,
    observation: str = "",
    actions: Sequence[str] = (),
    step: int = 0,
    frozen: bool = False,
) -> Use:
    """What a policy shows at a situation."""
    query = experience.query(goal, observation, actions, step, learning=not frozen)
    return experience.choose(query, experience.candidates(query))


def finish(experience: Experience, taken: Sequence[tuple[Use, str]], outcome: float) -> Finished:
    """An experience learns from an episode that ended with `outcome`, in which these actions were taken."""
    for use, action in taken:
        use.taken, use.reward = action, outcome
    return experience.conclude([use for use, _ in taken], outcome)


def play(
    memory: Memory,
    task: str,
    action: str,
    reward: float,
    actions: Sequence[str] = ACTIONS,
    *,
    query: str = "",
    **people: str,
) -> str:
    """An episode of one search, one action and a reward; its id. `people`: `by`, who asks, and `judge`, whose word it is."""
    with memory.episode(task, by=people.get("by", "")) as episode:
        episode.search(query, actions=actions)
        episode.act(action)
        episode.reward(reward, by=people.get("judge"))
    return episode.id


def note_uses(name: str, learned: list[Use]) -> Callable[[], Policy]:
    """Return what makes a policy of this name whose valuer notes what it learns from, since it was made, in `learned`."""

    def make() -> Policy:
        made = policy(name)
        learn = made.valuer.learn

        def note(use: Use, pool: Pool) -> None:
            learned.append(use)
            learn(use, pool)

        learned.clear()
        made.valuer.learn = note  # type: ignore[method-assign]
        return made

    return make


def rows(memory: Memory, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """What a memory that is open has in its tables."""
    with memory.store.database.reading() as connection:
        return select(connection, statement, values)


def in_another_thread(work: Callable[[], object]) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()


def at_once(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """The results of calls that begin together, each in a thread of its own, in their order; an error is its own result."""
    barrier, results = threading.Barrier(len(calls)), [None] * len(calls)

    def run(number: int) -> None:
        barrier.wait()
        try:
            results[number] = calls[number]()
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def behind_its_back(path: Path, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """The rows of a statement that is carried out in a file by another program."""
    with closing(apsw.Connection(str(path))) as connection:
        return connection.execute(statement, values).fetchall()


def command(*words: object, input: str | bytes = "") -> Any:
    """The result of a command of `keepworth memory`."""
    return CliRunner().invoke(app, [str(word) for word in words], input=input)


# A disk that is full, for files of this process.


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    """The system refuses to let a file grow beyond `size` bytes, as a quota does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
