"""A gateway: OpenAI's and Anthropic's routes with memory in between. An agent that changes its base URL remembers.

Each turn of a user is an episode. Before it goes upstream, what memory recalls for it enters the prompt as a piece of its own,
right before the user's newest words (`call_formats`). What was sent once is never rewritten: the same block stands before the
same words in every later call of the conversation, so a prompt only ever grows at its end, and a provider's prefix cache stays
good. Conversations are known by what they say, as digests of their pieces, within the bounds of the caller; no session is named.
A conversation that begins with words that were sent before is a new one, and recalls anew: only a retry within seconds gets what
was sent the first time. Where the upstream itself keeps a conversation, each turn has a block of its own; what
it keeps is open to whoever has its key, so those routes are closed to tokens of anybody else.

Every turn has a receipt: which items were recalled, and which of them are in the very bytes that went upstream.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from keepworth.episodes.needs import needs_server

from pydantic_core import from_json
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from keepworth.episodes.episode import Operation, OperationKind
from keepworth.episodes.errors import KeepworthError
from keepworth.episodes.text import as_line
from keepworth.memory.episode import LiveEpisode
from keepworth.memory.errors import InvalidScope, RefusedText, UnknownEpisode
from keepworth.memory.item import Provenance, later, now, timestamp, worded
from keepworth.memory.memory import Memory
from keepworth.memory.operations import Draft
from keepworth.memory.search.search import Hit, Hits
from keepworth.memory.sentences import says_something
from keepworth.memory.store import notes
from keepworth.memory.store.store import Store
from keepworth.memory.writing import load_writer
from keepworth.models.encoders import HashingEncoder
from keepworth.serving.access import Access, bounds_in, new_access
from keepworth.serving.application import Streamed
from keepworth.serving.call_formats import (
    EVENTS,
    FORMATS,
    MARK,
    CallFormat,
    SpokenReply,
    first_answer,
    names_kept,
    strip_host_words,
    tools_answered,
)
from keepworth.serving.calls import NotServed, ServedCall, json_object
from keepworth.serving.open_memories import OpenMemories, OpenMemory
from keepworth.serving.upstream import Unreachable, Upstream, UpstreamAnswer

_LOG = logging.getLogger("keepworth.serving")
MODES = ("on", "read", "off")
"""What a caller may say of memory, first what is done where it says nothing. read: write nothing."""
SOON = 1.0
"""Seconds that a call waits, at most, until what the same person's last turn said is noted."""
RETRY_SECONDS = 5.0
"""The same words again within this time are a retry, where the caller does not say whether they are."""
SDK_RETRY_SECONDS = 1200.0
"""The same for a caller that says so in `X-Stainless-Retry-Count`, as OpenAI's and Anthropic's SDKs do: twice their time-out."""
LONGEST_ANSWER = 64 * 2**20
"""Bytes of an answer that does not come as events."""
_LONGEST_QUERY = 4000
_LONGEST_REPLY = 2**20
_LONGEST_READ = 8 * 2**20
"""Bytes of a whole answer that is read for what it says; a longer one is passed on unread."""
_LONGEST_NOTE = 4000
_PASSED = (
    ("POST", "/v1/completions"),
    ("POST", "/v1/embeddings"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/{model:path}"),
    ("POST", "/v1/messages/count_tokens"),
    *((method, "/v1/responses/{rest:path}") for method in ("GET", "POST", "DELETE")),
    ("POST", "/v1/conversations"),
    *((method, "/v1/conversations/{rest:path}") for method in ("GET", "POST", "DELETE")),
)
"""What goes upstream as it came."""
_KEEPING = ("/v1/responses", "/v1/conversations")
"""Beginnings of the paths of what an upstream keeps."""


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """How a gateway uses memory.

    Args:
        top_k: Items recalled for a turn.
        tokens: Of all blocks in one prompt.
        turn_tokens: Of one block (see `tokens_of`).
    """

    top_k: int = 8
    tokens: int = 1500
    turn_tokens: int = 500


@dataclass(frozen=True, slots=True)
class MemoryBlock:
    """What stands before one message of the user.

    Args:
        episode: The newest one.
        lines: What is shown of each item, by id.
        at: When it was first sent.
    """

    episode: str = ""
    lines: Mapping[str, str] = field(default_factory=dict)
    at: str = ""

    @property
    def text(self) -> str:
        return "\n".join([MARK, *self.lines.values()])

    @property
    def tokens(self) -> int:
        return tokens_of(self.text) if self.lines else 0


@dataclass(slots=True)
class TurnMemory:
    """The part that memory has in a turn.

    Args:
        head: The newest entry of the journal when memory was asked.
        digest: Of the conversation up to its newest turn; `block` stands before that.
        after: The episode of the turn before.
    """

    open: OpenMemory
    format: CallFormat
    scope: tuple[str, ...]
    episode: str = ""
    head: int = 0
    digest: str = ""
    block: MemoryBlock | None = None
    after: str = ""


@dataclass(slots=True)
class GatewayTurn:
    """What goes upstream. memory: None where it takes no part; person: whom the token or the call names."""

    content: bytes
    mode: str = "off"
    memory: TurnMemory | None = None
    failed: bool = False
    tenant: str = ""
    person: str = ""


def tokens_of(text: str) -> int:
    """At most so many tokens, for English and most tokenizers: one for three bytes of UTF-8, and four for a message."""
    return -(-len(text.encode()) // 3) + 4


class Gateway:
    """memories: what is recalled from and written to, by the token of each call. upstream: where calls go."""

    def __init__(
        self, memories: OpenMemories, upstream: Upstream, workers: Executor, settings: GatewaySettings | None = None
    ) -> None:
        self.memories, self.upstream, self.workers = memories, upstream, workers
        self.settings = settings or GatewaySettings()
        memory = memories.of(new_access()).memory
        self._finishing: set[asyncio.Future[None]] = set()
        self._noting: dict[tuple[str, str], set[asyncio.Future[None]]] = {}
        """Of (tenant, person) what is being noted by rules: the person's next call waits for it, so as to know it."""
        self._lane = ThreadPoolExecutor(_threads(memory), "gateway-memory")
        load_writer(memory)  # before anybody waits for it

    def streamed(self) -> dict[tuple[str, str], Streamed]:
        """(method, path) -> what answers it."""
        remembering = {("POST", format.path): partial(self.asked, format) for format in FORMATS}
        return {**remembering, **dict.fromkeys(_PASSED, self.through)}

    async def through(self, call: ServedCall, request: Request) -> Response:
        """As it came, byte by byte."""
        call.access.require("write" if request.method == "DELETE" else "read")
        self._check_kept(call.access, request.scope["path"], json_object(call.raw) if call.raw else {})
        return await self._forwarded(GatewayTurn(call.raw, tenant=call.access.tenant), request)

    async def asked(self, format: CallFormat, call: ServedCall, request: Request) -> Response:
        call.access.require("read")
        body, bounds = json_object(call.raw), bounds_in(call.headers)
        self._check_kept(call.access, format.path, body)
        person = call.access.user_id or bounds["user_id"]
        if before := self._noting.get((call.access.tenant, person)):
            await asyncio.wait(before, timeout=SOON)
        work = partial(self.prepared, format, call, body, bounds)
        turn = await asyncio.get_running_loop().run_in_executor(self._lane, work)
        turn.tenant, turn.person = call.access.tenant, person
        return await self._forwarded(turn, request)

    def _check_kept(self, access: Access, path: str, body: Mapping[str, Any]) -> None:
        """What the upstream keeps is open to whoever has its key. Raises NotServed for a token that others must be kept from."""
        if access.whole and (not access.tenant or self.upstream.tenants_apart):
            return
        if path.startswith(_KEEPING) or names_kept(body):
            raise NotServed(
                f"This call is about what the upstream keeps, and {path} opens that to whoever has the upstream's key, which "
                "is not this token's own.",
                "Send all of it to /v1/chat/completions.",
                status=403,
            )

    # -- before ---------------------------------------------------------------------------------------------------------

    def prepared(
        self, format: CallFormat, call: ServedCall, body: dict[str, Any], bounds: Mapping[str, str]
    ) -> GatewayTurn:
        """What is sent upstream for a call: without memory where memory fails. Raises NotServed for a mistake of the caller."""
        mode = call.headers.get("x-keepworth-memory", MODES[0]).lower()
        if mode not in MODES:
            raise NotServed(f"X-Keepworth-Memory is {mode!r:.40}.", f"Say one of {', '.join(MODES)}.")
        if mode == "on" and "write" not in call.access.roles:
            mode = "read"
        pieces = format.pieces(body) if mode != "off" else None
        if not pieces:  # the upstream says what is wrong with it
            return GatewayTurn(call.raw)
        open = self.memories.of(call.access)
        try:
            turn = None
            while turn is None:  # again where something was erased at that very moment
                turn = self._with_memory(GatewayTurn(call.raw, mode), open, format, call, bounds, body, pieces)
            return turn
        except InvalidScope as error:
            raise NotServed(error.message, error.fix, status=403) from error
        except Exception as error:
            _report_failure("a call goes on without memory", error)
            return GatewayTurn(call.raw, failed=True)

    def _with_memory(
        self,
        turn: GatewayTurn,
        open: OpenMemory,
        format: CallFormat,
        call: ServedCall,
        bounds: Mapping[str, str],
        body: dict[str, Any],
        pieces: list[Any],
    ) -> GatewayTurn | None:
        """The turn with what memory recalls for it. None where something was erased meanwhile, which it may quote."""
        scope = open.memory.scopes.narrowed(**bounds)  # raises InvalidScope
        memory = turn.memory = TurnMemory(open, format, scope.parts())
        places, goes_on = format.turns(pieces), format.goes_on(pieces)
        newest = places[-1] if places else -1
        query = strip_host_words(pieces[newest]) if places else ""
        digests, before = self._history(memory, format.continues(body), pieces, places)
        if newest in before and not (goes_on or tools_answered(pieces[newest + 1 :])):
            seconds = _retried_within(call.headers)
            at, clock = before[newest].at, timestamp(open.memory.store.clock())
            if not (at and seconds and later(at, seconds) >= clock):
                del before[newest]  # the same words, in a new conversation
        live = recalled = None
        room = MemoryRoom({id: line for block in before.values() for id, line in block.lines.items()}, 0)
        if newest not in before and query.strip() and not goes_on:
            live = open.begin(task=query[:_LONGEST_QUERY], by=call.access.user_id or bounds["user_id"], **bounds)
            spent = sum(block.tokens for block in before.values())
            room.tokens = min(self.settings.turn_tokens, self.settings.tokens - spent)
            # Where neither token nor header names a person, what persons said is nobody's to be told.
            narrower: dict[str, Any] = {} if scope.user else {"nobody": True}
            # A session names a conversation, and all of the person's are searched.
            with open.memory.store.database.reading():
                recalled = live.search(top_k=self.settings.top_k, fits=room, session_id="", **narrower)
            last = max((index for index in before if index < newest), default=-1)
            memory.after = before[last].episode if last >= 0 else ""
            before[newest] = MemoryBlock(live.id, room.lines(recalled), timestamp(open.memory.store.clock()))
        memory.digest, memory.block = digests.get(newest, ""), before.get(newest)
        if memory.block is None:
            return GatewayTurn(turn.content)
        memory.episode = memory.block.episode
        if blocks := {index: block.text for index, block in before.items() if block.lines}:
            sent = format.put(body, pieces, blocks)
            turn.content = json.dumps(sent, ensure_ascii=False, separators=(",", ":")).encode()
        if live is not None and recalled is not None and not self._note(turn, live, room, recalled, before, query):
            live.end("asked anew")
            return None
        return turn

    def _history(
        self, memory: TurnMemory, name: str, pieces: Sequence[Any], places: Sequence[int]
    ) -> tuple[dict[int, str], dict[int, MemoryBlock]]:
        """(digests, blocks) by the places of turns, of which blocks are known.

        Args:
            name: Under which the upstream keeps what was said before; "" for nothing.
        """
        store, format = memory.open.memory.store, memory.format
        digests = _digests(memory.scope, format, name, pieces, places)
        answered = {
            index: _digest("answered", digests[index], words)
            for index, end in zip(places, [*places, len(pieces)][1:], strict=True)
            if (words := first_answer(pieces[index + 1 : end]))
        }
        with store.database.reading():
            memory.head = store.head()
            noted = notes.blocks(store, [*digests.values(), *answered.values()])
        records = {index: noted.get(answered.get(index, "")) or noted.get(digest) for index, digest in digests.items()}
        blocks = {
            index: MemoryBlock(record["episode"], record["lines"], record.get("at", ""))
            for index, record in records.items()
            if record
        }
        return digests, blocks

    def _note(
        self,
        turn: GatewayTurn,
        live: LiveEpisode,
        room: MemoryRoom,
        recalled: Hits,
        before: Mapping[int, MemoryBlock],
        query: str,
    ) -> bool:
        """On file before anything is sent: the block, the receipt and what the turn will be remembered by. Whether they are: they
        are not where something was erased meanwhile."""
        memory = turn.memory
        assert memory is not None
        assert memory.block is not None
        injected = in_bytes(memory.format, turn.content, before.values())
        ids = list(dict.fromkeys([*room.recalled[: self.settings.top_k], *(hit.id for hit in recalled)]))
        receipt: dict[str, Any] = {
            "episode": memory.episode,
            "decision": recalled.decision,
            "recalled": ids,
            "injected": [id for id in dict.fromkeys((*ids, *injected)) if id in injected],
            "new": [id for id in memory.block.lines if id in injected],
            "missing": [id for value in before.values() for id in value.lines if id not in injected],
            "tokens": sum(value.tokens for value in before.values()),
            "sha256": hashlib.sha256(turn.content).hexdigest(),
            "bytes": len(turn.content),
        }
        words: dict[str, Any] | None = None
        text = self._screened(memory.open.memory, query) if turn.mode == "on" else ""
        if text:
            words = {"text": text, "scope": list(live.scope.parts()), "at": now()}
            words |= {"after": memory.after} if memory.after else {}
        store = memory.open.memory.store
        return notes.begin_turn(
            store, memory.digest, asdict(memory.block), memory.episode, receipt, words, since=memory.head
        )

    def _screened(self, memory: Memory, text: str) -> str:
        """As much of what was said as may lie on the disk; "" for what is refused."""
        if memory.store.scan is None:
            return text
        try:
            return memory.store.scan.screened(Operation(OperationKind.ADD, text=text), Draft())[0].text
        except RefusedText:
            return ""

    # -- upstream -------------------------------------------------------------------------------------------------------

    async def _forwarded(self, turn: GatewayTurn, request: Request) -> Response:
        asked = asyncio.ensure_future(self._asked(turn, request))
        left = asyncio.ensure_future(_hung_up(request))
        try:
            await asyncio.wait({asked, left}, return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                asked.cancel()
                self._finish(turn, 0, b"", "", "stopped by the caller")
                return Response(status_code=499)
            answer, whole = await asked
        except Unreachable as error:
            self._finish(turn, 0, b"", "", f"stopped by {error.kind}")
            raise NotServed(error.message, error.fix, status=504 if error.kind == "timeout" else 502) from error
        except NotServed:
            self._finish(turn, 0, b"", "", "stopped by the gateway")
            raise
        finally:
            asked.cancel()  # where the server closes meanwhile
            left.cancel()
        headers = {**answer.headers, **({"X-Keepworth-Memory": "failed"} if turn.failed else {})}
        if turn.memory is not None and not turn.failed:
            headers |= {"X-Keepworth-Memory": turn.mode, "X-Keepworth-Episode": turn.memory.episode}
        if whole is None:
            return StreamingResponse(self._copied(turn, answer), answer.status, headers)
        copy = whole if len(whole) <= _LONGEST_READ else b""
        self._finish(turn, answer.status, copy, answer.kind, _outcome(answer.status))
        return Response(whole, answer.status, headers)

    async def _asked(self, turn: GatewayTurn, request: Request) -> tuple[UpstreamAnswer, bytes | None]:
        """The answer, and all of it but where it comes as events: an answer that breaks off can still become an error then.
        Raises NotServed for one that is too long."""
        answer = await self.upstream.send(
            request.method,
            request.scope["path"],  # `request.url` would read an escaped "?" as the beginning of a query
            request.scope["query_string"].decode("latin-1"),
            request.headers,
            turn.content,
            episode=turn.memory.episode if turn.memory is not None else "",
        )
        if answer.kind.startswith(EVENTS):
            return answer, None
        length, whole = answer.headers.get("content-length", ""), bytearray()
        try:
            self._check_length(int(length) if length.isdecimal() else 0)
            async for part in answer.parts():
                whole += part
                self._check_length(len(whole))
        finally:
            await answer.close()
        return answer, bytes(whole)

    def _check_length(self, size: int) -> None:
        if size > LONGEST_ANSWER:
            raise NotServed(
                f"The upstream {self.upstream.url} answered with more than {LONGEST_ANSWER} bytes.",
                "Ask for less, or for a stream, which has no bound.",
                status=502,
            )

    async def _copied(self, turn: GatewayTurn, answer: UpstreamAnswer) -> AsyncIterator[bytes]:
        """The bytes as they come, with a copy for the episode. Where the caller leaves, the upstream's answer ends, too."""
        copy, outcome = bytearray(), "stopped by the caller"
        try:
            async for part in answer.parts():
                if turn.memory is not None and len(copy) < _LONGEST_REPLY:
                    copy += part
                yield part
            outcome = _outcome(answer.status)
        except Unreachable as error:
            # The status is sent already; an event that is an error is what clients understand.
            outcome = "stopped by the upstream"
            broken = (FORMATS[0] if turn.memory is None else turn.memory.format).broken(str(error))
            event = f"event: {broken['type']}\n" if "type" in broken else ""
            yield f"\n\n{event}data: {json.dumps(broken)}\n\n".encode()
        finally:
            self._finish(turn, answer.status, bytes(copy), answer.kind, outcome)
            await answer.close()

    # -- after ----------------------------------------------------------------------------------------------------------

    def _finish(self, turn: GatewayTurn, status: int, copy: bytes, kind: str, outcome: str) -> None:
        """Beside, in a thread: the caller has its answer already."""
        if turn.memory is None:
            return
        # Who asks a model waits for it, and shall keep nobody else waiting.
        slow = self._asks_a_model(turn.memory)
        done = asyncio.get_running_loop().run_in_executor(
            self.workers if slow else self._lane, self._recorded, turn, status, copy, kind, outcome
        )
        self._finishing.add(done)
        done.add_done_callback(self._finishing.discard)
        if turn.person and not slow:
            whose = turn.tenant, turn.person
            self._noting.setdefault(whose, set()).add(done)
            done.add_done_callback(partial(self._was_noted, whose))

    def _was_noted(self, whose: tuple[str, str], done: asyncio.Future[None]) -> None:
        still = self._noting[whose]
        still.discard(done)
        if not still:
            del self._noting[whose]

    def _asks_a_model(self, memory: TurnMemory) -> bool:
        """Whether a writer that may be a model is asked after the turn."""
        writer = memory.open.memory.writer
        return not getattr(writer, "by_rules", writer is None)

    async def end(self) -> None:
        """What is being noted is waited for, and connections upstream are closed."""
        await asyncio.gather(*self._finishing, return_exceptions=True)
        self._lane.shutdown(wait=False)
        await self.upstream.close()

    def _recorded(self, turn: GatewayTurn, status: int, copy: bytes, kind: str, outcome: str) -> None:
        memory = turn.memory
        assert memory is not None
        try:
            words = self._record(memory, status, copy, kind, outcome)
            if words is not None:
                self._write_words(memory.open, memory.episode, words)
        except UnknownEpisode:  # it was erased meanwhile, with all that happened in it
            return
        except Exception as error:
            _report_failure("a turn was not recorded whole", error)

    def _record(
        self, memory: TurnMemory, status: int, copy: bytes, kind: str, outcome: str
    ) -> Mapping[str, Any] | None:
        """Note how the turn ended; what is to be written of what was said in it."""
        store = memory.open.memory.store
        with store.database.reading():
            live, words = memory.open.episode(memory.episode), notes.waiting_turn(store, memory.episode)
            if 0 < status < 400:
                reply = memory.format.reply(copy, kind)
                self._act(store, live, reply)
                if memory.block is not None and (reply_words := reply.words.strip()):
                    # Conversations that begin alike are told apart by what the model answered.
                    digest = _digest("answered", memory.digest, reply_words)
                    notes.keep_block(store, digest, asdict(memory.block), since=memory.head)
            live.end(outcome)
        return words

    def _act(self, store: Store, live: LiveEpisode, reply: SpokenReply) -> None:
        """What a later call of the same turn says, after its tools answered, takes the place of what an earlier one said."""
        if not live._waiting and reply.words.strip():
            receipt = notes.receipt(store, live.id)
            if receipt is not None and receipt["decision"] and not live._rewarded():
                live._waiting = [receipt["decision"]]
        if live._waiting:
            done = worded(reply.text, "the answer")
            live.act(done if done.strip() else "(an answer without words)")

    def _write_words(self, open: OpenMemory, episode: str, words: Mapping[str, Any]) -> None:
        """What the user said in the turn, once; nothing of what the model said."""
        memory, text = open.memory, str(words["text"])[:_LONGEST_NOTE]
        _, user, agent, _ = words["scope"]
        # A fact outlives the conversation it was said in.
        options = {"user_id": user, "agent_id": agent, "episode": episode}
        before = None
        with contextlib.suppress(UnknownEpisode):  # the turn before was erased meanwhile
            before = open.episode(words["after"]) if words.get("after") else None
        with notes.ending_turn(memory.store, episode) as done:
            with contextlib.suppress(RefusedText):  # it will be refused the next time, too
                if memory.writer is not None:
                    asked = {"before": before.task} if before is not None else {}
                    message = {"role": "user", "content": text, "said_at": words.get("at", ""), **asked}
                    memory.add([message], infer=True, source="gateway", **options)
                elif says_something(text):
                    memory.add_many([text], provenances=[Provenance("gateway", speaker="user")], **options)
            done()

    def resume(self, open: OpenMemory) -> None:
        """Write what a killed process left to be written."""
        for id, words in notes.waiting_turns(open.memory.store):
            try:
                self._write_words(open, id, words)
            except KeepworthError as error:
                _LOG.warning("a turn could not be written: %s", error)


async def _hung_up(request: Request) -> None:
    """Returns when the caller has hung up."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _report_failure(what: str, error: Exception) -> None:
    """Log a failure of memory: in a line where the error names its fix, else with its traceback."""
    if isinstance(error, KeepworthError):
        _LOG.warning("%s: %s", what, error)
    else:
        _LOG.warning("%s: %s", what, type(error).__name__, exc_info=error)


def _threads(memory: Memory) -> int:
    """That recall, and note what came of it. Python computes in one thread at a time, and several that each want their turn after
    every look at the file keep one another, and the event loop, waiting. An encoder that is a network computes beside Python, and
    longer than all the rest."""
    embedder = memory.store.embedder
    return 1 if embedder is None or isinstance(embedder.encoder, HashingEncoder) else 2


def in_bytes(format: CallFormat, content: bytes, blocks: Iterable[MemoryBlock]) -> set[str]:
    """Ids of the items whose line is in what was sent, read back from its bytes."""
    lines = {line for text in format.marked(from_json(content)) for line in text.split("\n")}
    return {id for block in blocks for id, line in block.lines.items() if line in lines}


@dataclass(slots=True)
class MemoryRoom:
    """What of the items that are found may enter a prompt: those that are in it already, and as many others, best first, as there
    is room for. Any of them may then be shown together, so a policy still chooses, and what it chose is what is shown.

    there: lines in the prompt already, by id. tokens: what a new block may have. recalled: ids, best first."""

    there: Mapping[str, str]
    tokens: int
    recalled: list[str] = field(default_factory=list)

    def __call__(self, hits: Sequence[Hit]) -> list[Hit]:
        self.recalled = [hit.id for hit in hits]
        fitting, lines = list[Hit](), set(self.there.values())
        block = MARK
        for hit in hits:
            line = _line(hit)
            if self.there.get(hit.id) == line:
                fitting.append(hit)
            elif line not in lines and tokens_of(f"{block}\n{line}") <= self.tokens:
                fitting.append(hit)
                lines.add(line)
                block = f"{block}\n{line}"
        return fitting

    def lines(self, hits: Iterable[Hit]) -> dict[str, str]:
        """A line for each item that is not in the prompt yet, or was reworded since."""
        return {hit.id: line for hit in hits if self.there.get(hit.id) != (line := _line(hit))}


def _line(hit: Hit) -> str:
    return f"- {as_line(hit.text)}"


def _digests(
    scope: Sequence[str], format: CallFormat, name: str, pieces: Sequence[Any], places: Sequence[int]
) -> dict[int, str]:
    """Of the conversation up to and with each of these pieces, within a scope."""
    state = hashlib.sha256(json.dumps([*scope, format.path, name]).encode())
    digests = {}
    for index, piece in enumerate(pieces):
        state.update(hashlib.sha256(json.dumps(format.same(piece), sort_keys=True).encode()).digest())
        digests[index] = state.hexdigest()
    return {index: digests[index] for index in places}


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _retried_within(headers: Mapping[str, str]) -> float:
    """Seconds within which the same words are a retry."""
    count = headers.get("x-stainless-retry-count", "")
    if not count.isdecimal():
        return RETRY_SECONDS
    return SDK_RETRY_SECONDS if int(count) else 0.0


def _outcome(status: int) -> str:
    return "completed" if status < 400 else f"stopped by the upstream's {status}"
