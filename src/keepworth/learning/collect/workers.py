"""Rollouts in other processes: `RolloutWorkers` is the controller's side, `Rollouts` the worker's.

What an episode depends on stays with the controller: its context, its call log and what is drawn for it. A worker runs the
rollout itself, with its environment, its tools and its rewards, and asks the controller for everything that the call log holds.
All members of a group run in one worker. Of a worker that dies the members begin again in another one: from their call logs, so
that nothing that was drawn is drawn again.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import pickle
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from keepworth.environments.environment import in_thread
from keepworth.episodes.episode import Episode, StopReason, Task, episode_from_json, episode_to_json
from keepworth.episodes.errors import KeepworthError
from keepworth.episodes.model import Sample, SamplingParams, Tokens
from keepworth.learning.collect.groups import (
    CallFailed,
    CallLog,
    DraftSampler,
    InGroup,
    RecordedContext,
    RecordedRollout,
    Terms,
    failed_episode,
    run_rollout,
)
from keepworth.learning.collect.images import Imaged, ImageReader, MemoryImage
from keepworth.learning.placement import ONE_CORE, Cluster, Needs, Worker, WorkerDied, WorkerFailed, WorkerPart
from keepworth.models.partial_sample import PartialSample

if TYPE_CHECKING:
    from keepworth.models.text_side import TextSide

DEATHS = 5
"""So many workers may die while they work on one group; its episodes that are not done then fail."""


# Both sides say what is to be said in messages: tuples whose first part is one of these words, whose second is the number of
# the attempt at an episode. An attempt may ask for several things at once; each question has a number.
#
#     controller to worker                               worker to controller
#     BEGIN    n, EpisodeTry                             ASK      n, question, what, arguments
#     ANSWER   n, question, whether it went well, value  ENDED    n, the episode as JSON
#     DROP     n                                         FAILED   n, why: not the rollout, what is around it
#     TOGETHER number of a joint call, attempts, name    READY    number of a joint call
#     FORGET   group
#     IMAGE    0, MemoryImage: of the memory, before the first episode that reads it

BEGIN, ANSWER, DROP, TOGETHER, FORGET, IMAGE = "begin", "answer", "drop", "together", "forget", "image"
ASK, ENDED, FAILED, READY = "ask", "ended", "failed", "ready"
Said = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class EpisodeTry:
    """What a worker needs to begin an episode. version: of the weights now; seconds: how long the episode may take."""

    task: Task
    group: int
    member: int
    tries: int
    terms: Terms
    version: int
    seconds: float


# -- the worker's side --------------------------------------------------------------------------------------------------


class AskingContext(RecordedContext):
    """The context of an episode in a worker: what the call log holds, it asks the controller for; all else happens here."""

    def __init__(self, attempt: EpisodeTry, companions: InGroup, ask: Callable[..., asyncio.Future[Any]]) -> None:
        log = CallLog(tries=attempt.tries)
        super().__init__(_Elsewhere(), log, attempt.group, attempt.member, attempt.terms, companions)
        self._ask = ask
        self.joint: dict[str, tuple[Callable[..., Any], Any, float | None, asyncio.Future[Any]]] = {}

    async def sample(self, prompt: Tokens, params: SamplingParams) -> Sample:
        sample: Sample = await self._ask("sample", tuple(prompt), params)
        return sample

    async def with_group(
        self, name: str, function: Callable[[Sequence[Any]], Sequence[Any]], item: Any, seconds: float | None = None
    ) -> Any:
        """The controller knows who is missing, and says when to call `function`; the items never leave this process."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.joint[name] = function, item, seconds, answer
        try:
            await self._ask("together", name)
            return await answer
        finally:
            if self.joint.get(name, (None,))[-1] is answer:
                del self.joint[name]
            answer.cancel()

    async def remember(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        known, value = await self._ask("recalled", name)
        if known:
            return value
        value = await self.call(function, *arguments, name=name)
        json.dumps(value)  # raises TypeError here, where it can be put right, and not when the run is saved
        await self._ask("keep", name, value)
        return value


_asking: ContextVar[Callable[..., asyncio.Future[Any]]] = ContextVar("_asking")


async def ask_controller(what: str, *arguments: Any) -> Any:
    """For what an episode's environment needs of the controller; in a worker, within the episode."""
    return await _asking.get()(what, *arguments)


class _Elsewhere:
    async def sample(self, draft: PartialSample) -> Sample:
        raise AssertionError("a worker draws nothing")


@dataclass(frozen=True, slots=True)
class WorkerRollout:
    """What a recipe gives a rollout worker. memory: that its rollout reads and the controller writes; None for none."""

    rollout: RecordedRollout
    memory: ImageReader | None = None


class Rollouts:
    """What a worker's process holds: runs episodes, and says what they ask for. text: what is told of new weights; memory: what
    the rollout reads, given images of the controller's."""

    def __init__(
        self, rollout: RecordedRollout, text: TextSide | None = None, memory: ImageReader | None = None
    ) -> None:
        self._rollout, self._text, self._memory = rollout, text, memory
        self._saying: list[Said] = []
        self._something = asyncio.Event()
        self._running: dict[int, asyncio.Task[None]] = {}
        self._contexts: dict[int, AskingContext] = {}
        self._questions: dict[tuple[int, int], asyncio.Future[Any]] = {}
        self._numbers = itertools.count()
        self._companions: dict[int, InGroup] = {}
        self._joint: set[asyncio.Task[None]] = set()

    async def heard(self) -> list[Said]:
        """What is to be said to the controller, once there is something."""
        await self._something.wait()
        self._something.clear()
        said, self._saying = self._saying, []
        return said

    def tell(self, messages: Sequence[Said]) -> None:
        loop = asyncio.get_running_loop()
        for word, number, *rest in messages:
            if word == BEGIN:
                self._running[number] = loop.create_task(self._run(number, *rest))
            elif word == ANSWER:
                self._answered(number, *rest)
            elif word == TOGETHER:
                task = loop.create_task(self._call_together(number, *rest))
                self._joint.add(task)
                task.add_done_callback(self._joint.discard)
            elif word == FORGET:
                self._companions.pop(number, None)
            elif word == IMAGE:
                assert self._memory is not None
                self._memory.read(*rest)
            elif number in self._running:
                self._running[number].cancel()

    def _say(self, *message: Any) -> None:
        self._saying.append(message)
        self._something.set()

    async def _run(self, number: int, attempt: EpisodeTry) -> None:
        if self._text is not None:
            self._text.version = attempt.version
        companions = self._companions.setdefault(attempt.group, InGroup(lambda: 0))
        ask = partial(self._asked, number)
        _asking.set(ask)  # of this task and those that it begins
        context = AskingContext(attempt, companions, ask)
        self._contexts[number] = context
        try:
            episode = await run_rollout(self._rollout, attempt.task, context, attempt.seconds)
            self._say(ENDED, number, json.dumps(episode_to_json(episode)))
        except Exception as error:  # errors of a rollout are values: this one is ours
            self._say(FAILED, number, f"{type(error).__name__}: {error}")
        finally:
            del self._contexts[number], self._running[number]
            for key in [each for each in self._questions if each[0] == number]:
                self._questions.pop(key).cancel()

    def _asked(self, number: int, what: str, *arguments: Any) -> asyncio.Future[Any]:
        question = next(self._numbers)
        answer = self._questions[number, question] = asyncio.get_running_loop().create_future()
        self._say(ASK, number, question, what, arguments)
        return answer

    def _answered(self, number: int, question: int, well: bool, value: Any) -> None:
        answer = self._questions.pop((number, question), None)
        if answer is None or answer.done():  # whoever asked has given up
            return
        if well:
            answer.set_result(value)
        else:
            answer.set_exception(value)

    async def _call_together(self, joint: int, numbers: Sequence[int], name: str) -> None:
        """Call the function that the members handed in with their items, once for all of them, in the order of `numbers`."""
        contexts = [self._contexts[each] for each in numbers if each in self._contexts]
        asking = [context.joint[name] for context in contexts]
        try:
            if asking:
                function, _, seconds, _ = asking[-1]
                items = [item for _, item, _, _ in asking]
                results = await contexts[-1].call(function, items, seconds=seconds, name=name)
                for (*_, answer), result in zip(asking, results, strict=True):
                    if not answer.done():
                        answer.set_result(result)
        except Exception as error:
            for *_, answer in asking:
                if not answer.done():
                    answer.set_exception(error)
        self._say(READY, joint)


# -- the controller's side ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Begun:
    """An attempt that runs in a worker. answering: what was asked and is not answered yet."""

    context: RecordedContext
    companions: InGroup
    ended: asyncio.Future[Episode]
    answering: set[asyncio.Task[None]] = field(default_factory=set)


class _Drafts:
    """A sampler whose drafts go on while a worker is replaced: whoever asks for one again waits for the same."""

    def __init__(self, sampler: DraftSampler) -> None:
        self._sampler = sampler
        self._drawn: dict[int, tuple[PartialSample, asyncio.Task[Sample]]] = {}

    async def sample(self, draft: PartialSample) -> Sample:
        if id(draft) not in self._drawn:
            task = asyncio.get_running_loop().create_task(self._sampler.sample(draft))
            self._drawn[id(draft)] = draft, task
        return await asyncio.shield(self._drawn[id(draft)][1])

    def close(self) -> None:
        for _, task in self._drawn.values():
            task.cancel()


class _Place:
    """One of the workers, from its start to its death."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.begun: dict[int, _Begun] = {}
        self.numbers = itertools.count()
        self.joint: dict[int, asyncio.Future[None]] = {}
        self.died: WorkerDied | None = None
        self.image: MemoryImage | None = None
        self._telling: list[Said] = []
        self._sending: asyncio.Task[None] | None = None

    @cached_property
    def fault(self) -> asyncio.Future[None]:
        """What is wrong with what it is told, once something is."""
        return asyncio.get_running_loop().create_future()

    async def run(self, attempt: EpisodeTry, context: RecordedContext, companions: InGroup) -> Episode:
        """The episode. Raises WorkerDied where the worker does not live to its end."""
        loop, number = asyncio.get_running_loop(), next(self.numbers)
        begun = self.begun[number] = _Begun(context, companions, loop.create_future())
        self.tell(BEGIN, number, attempt)
        try:
            return await begun.ended
        except asyncio.CancelledError:
            self.tell(DROP, number)
            raise
        finally:
            self.begun.pop(number, None)
            for task in begun.answering:
                task.cancel()

    def show(self, image: MemoryImage) -> None:
        """Let the memory be this image for what is begun from here on."""
        if self.image is None or self.image.hash != image.hash:
            self.image = image
            self.tell(IMAGE, 0, image)

    def tell(self, *message: Any) -> None:
        """Send it with whatever else is told meanwhile: one call at a time, so that messages arrive in order."""
        self._telling.append(message)
        if self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send())

    async def _send(self) -> None:
        try:
            while self._telling and self.died is None:
                telling, self._telling = self._telling, []
                await asyncio.wrap_future(self.worker.call("tell", telling))
        except WorkerDied:  # `listen` notices it
            pass
        except KeepworthError as error:
            self._fault(error)
        finally:
            self._sending = None

    def _fault(self, error: KeepworthError) -> None:
        if not self.fault.done():
            self.fault.set_exception(error)

    async def listen(self) -> WorkerDied:
        """Do what the worker asks for, until it dies."""
        while True:
            saying = asyncio.wrap_future(self.worker.call("heard"))
            await asyncio.wait((saying, self.fault), return_when=asyncio.FIRST_COMPLETED)
            if self.fault.done():
                self.fault.result()
            try:
                said = saying.result()
            except WorkerDied as died:
                self.died = died
                for each in self.begun.values():
                    if not each.ended.done():
                        each.ended.set_exception(died)
                for ready in self.joint.values():
                    ready.cancel()
                return died
            for word, number, *rest in said:
                if word == READY:
                    if number in self.joint:  # else all who asked have given up
                        self.joint[number].set_result(None)
                    continue
                begun = self.begun.get(number)
                if begun is not None and not begun.ended.done():
                    if word == ENDED:
                        begun.ended.set_result(episode_from_json(json.loads(rest[0])))
                    elif word == FAILED:
                        begun.ended.set_exception(WorkerFailed(f"{self.worker.name} on {self.worker.host}: {rest[0]}."))
                    else:
                        task = asyncio.get_running_loop().create_task(self._answer(number, begun, *rest))
                        begun.answering.add(task)
                        task.add_done_callback(begun.answering.discard)

    async def _answer(self, number: int, begun: _Begun, question: int, what: str, arguments: Sequence[Any]) -> None:
        context = begun.context
        value: Any = None
        try:
            if what == "sample":
                value = await context.sample(*arguments)
            elif what == "recalled":
                value = context.recalled(*arguments)
            elif what == "keep":
                context.keep(*arguments)
            else:
                (name,) = arguments
                await begun.companions.together(name, context.member, lambda each: self._together(each, name), number)
        except Exception as error:
            self.tell(ANSWER, number, question, False, _sendable(error))
        else:
            self.tell(ANSWER, number, question, True, value)

    async def _together(self, numbers: Sequence[int], name: str) -> Sequence[None]:
        joint = next(self.numbers)
        ready = self.joint[joint] = asyncio.get_running_loop().create_future()
        self.tell(TOGETHER, joint, list(numbers), name)
        try:
            await ready
        finally:
            del self.joint[joint]
        return [None] * len(numbers)


class RolloutWorkers:
    """So many workers of a cluster that run episodes. Made before the loop runs; all else is called on it.

    part: what a worker is made of. note: is told of every worker that dies. memory: what episodes read, and only the controller
    writes, while none runs. Raises what `Cluster.spawn` raises."""

    memory: Imaged | None = None

    def __init__(
        self,
        cluster: Cluster,
        part: WorkerPart,
        count: int,
        note: Callable[[str], None],
        needs: Needs = ONE_CORE,
    ) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self._note = note
        names = [f"rollout worker {number}" for number in range(1, count + 1)]
        with ThreadPoolExecutor(count) as pool:
            workers = list(pool.map(lambda name: cluster.spawn(part, name, needs), names))
        self._places = [_Place(worker) for worker in workers]
        self._place_of: dict[int, _Place] = {}
        self._deaths: dict[int, int] = {}
        self._back = asyncio.Condition()

    async def listen(self) -> None:
        """Until cancelled, hear what the workers say, and go on with those that were started again after their death."""
        await asyncio.gather(*(self._keep(number) for number in range(len(self._places))))

    async def episode(self, attempt: EpisodeTry, log: CallLog, companions: InGroup, sampler: DraftSampler) -> Episode:
        """One episode, whatever becomes of the workers meanwhile."""
        drafts = _Drafts(sampler)
        try:
            while True:
                context = RecordedContext(drafts, log, attempt.group, attempt.member, attempt.terms, companions)
                image = None if self.memory is None else await in_thread(self.memory.image)
                place = await self._for(attempt.group)
                if image is not None:
                    place.show(image)
                try:
                    return await place.run(attempt, context, companions)
                except WorkerDied as died:
                    if self._deaths.get(attempt.group, 0) >= DEATHS:
                        why = f"{DEATHS} workers died at group {attempt.group}; the last: {died}"
                        return failed_episode(attempt.task, context, StopReason.ENVIRONMENT_ERROR, why)
        finally:
            drafts.close()

    def done(self, group: int) -> None:
        """All members of it are done."""
        place = self._place_of.pop(group, None)
        self._deaths.pop(group, None)
        if place is not None and place.died is None:
            place.tell(FORGET, group)

    async def _for(self, group: int) -> _Place:
        """Where a group runs: in one place, that with the fewest groups; in another one, if that dies."""
        place = self._place_of.get(group)
        if place is not None and place.died is None:
            return place
        async with self._back:
            await self._back.wait_for(lambda: any(each.died is None for each in self._places))
        place = self._place_of.get(group)  # another member may have been faster
        if place is None or place.died is not None:
            held = [*self._place_of.values()]
            place = min((each for each in self._places if each.died is None), key=held.count)
            self._place_of[group] = place
        return place

    async def _keep(self, number: int) -> None:
        while True:
            place = self._places[number]
            died = await place.listen()
            for group in {each.context.group for each in place.begun.values()}:
                self._deaths[group] = self._deaths.get(group, 0) + 1
            self._note(f"{died.message} Its episodes begin again; nothing that was drawn is lost.")
            try:
                await asyncio.wrap_future(place.worker.restarted())
            except KeepworthError as error:
                if all(each.died is not None for each in self._places):
                    raise
                self._note(f"{place.worker.name} is gone, and the run goes on with fewer workers: {error}")
                return
            self._places[number] = _Place(place.worker)
            async with self._back:
                self._back.notify_all()


def _sendable(error: Exception) -> Exception:
    with suppress(Exception):
        pickle.loads(pickle.dumps(error))
        return error
    return CallFailed(f"{type(error).__name__}: {error}")
