"""A gateway: OpenAI's and Anthropic's routes with memory in between. An agent only changes its base URL to have a memory.

Each turn of a user is an episode. Before a call goes upstream, what the memory recalls for the turn is put into the user's newest
message as a block before its words (`call_formats`). A block is never rewritten: it stands in the same message in every later
call of the conversation. So prompts only grow at their end, and the provider's prefix cache stays valid. A message without words,
such as a picture alone, begins no turn, and changes nothing of what stands before it.
Conversations are recognised by digests of their pieces, within the scope of the caller; callers name no session. A conversation
that begins with the same words as an earlier one is a new one, and recalls anew; only a retry within seconds gets the same block.
If the upstream itself stores conversations, each turn has a block of its own. What it stores can be read by anybody who has the
upstream's key, so those routes are closed to tokens that are bound to a person, an agent or a tenant.

Every turn has a receipt: which items were recalled, and which of them are in the prompt as the model reads it, if the upstream is
a model of this process, or else in the bytes that went upstream.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import shutil
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from keepworth.base.needs import needs_serve

from pydantic_core import from_json
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from keepworth.base.errors import KeepworthError
from keepworth.encoders.local import HashingEncoder
from keepworth.memory.automatic import asks, floor_of
from keepworth.memory.episode import LiveEpisode, write_episode
from keepworth.memory.errors import Busy, InvalidScope, RefusedText, StorageFailed, StorageFull, UnknownEpisode
from keepworth.memory.headline import MARK
from keepworth.memory.item import ALL, Provenance, later, timestamp, worded
from keepworth.memory.memory import Memory
from keepworth.memory.search.index import Embedder
from keepworth.memory.search.passages import PromptBlock, block, tokens_of
from keepworth.memory.search.search import Hit, Hits
from keepworth.memory.signals import is_check
from keepworth.memory.speech import clean, says_something
from keepworth.memory.store import kept_calls, notes, traces
from keepworth.memory.store.store import Store
from keepworth.memory.writing import load_writer
from keepworth.serving.access import Access, bounds_in, new_access
from keepworth.serving.application import Streamed, hung_up, in_thread
from keepworth.serving.call_formats import (
    FORMATS,
    CallFormat,
    SpokenReply,
    ToolEnd,
    first_answer,
    form_names_kept,
    is_answered,
    last_answer,
    names_kept,
    strip_host_words,
    tool_ends,
)
from keepworth.serving.calls import NotServed, ServedCall, json_object, whole_characters
from keepworth.serving.open_memories import OpenMemories, OpenMemory
from keepworth.serving.sent_calls import sent_call
from keepworth.serving.upstream import Unreachable, Upstream, UpstreamAnswer
from keepworth.serving.waiting_queries import WaitingQueries

if TYPE_CHECKING:
    from keepworth.serving.workers import UnstoredTurns

_LOG = logging.getLogger("keepworth.serving")
MODES = ("on", "read", "off")
"""Values of the header X-Keepworth-Memory, the default first. "read" recalls, but stores nothing that the user says."""
SOON = 1.0
"""The most seconds that a call waits until the same person's last turn has been stored."""
RETRY_SECONDS = 5.0
"""The same words within this time count as a retry, if the caller does not say whether it is one."""
SDK_RETRY_SECONDS = 1200.0
"""The same for a caller that sends `X-Stainless-Retry-Count`, as OpenAI's and Anthropic's SDKs do: twice their time-out."""
_LONGEST_QUERY = 40_000
"""The most characters of a message that are searched for: what a search reads to find the sentences that ask."""
_LONGEST_REPLY = 2**20
_LONGEST_READ = 8 * 2**20
"""The most bytes of an answer that is parsed; a longer one is passed on unparsed."""
_LONGEST_QUESTION = 2000
"""The most characters, from its end, of an answer of the model that are kept until the user's reply to it is stored."""
_LONG_BODY = 2**18
"""The bytes from which on a body is parsed in a thread."""
_LEAST_ROOM = 2**20
"""The free bytes of a disk that a turn needs: less is left for what people say than a turn may write after its answer."""
_PASSED = (
    ("POST", "/v1/completions"),
    ("POST", "/v1/embeddings"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/{model:path}"),
    ("POST", "/v1/messages/count_tokens"),
    *((method, "/v1/responses/{rest:path}") for method in ("GET", "POST", "DELETE")),
    ("POST", "/v1/conversations"),
    *((method, "/v1/conversations/{rest:path}") for method in ("GET", "POST", "DELETE")),
    *(("POST", f"/v1/{name}") for name in ("moderations", "rerank", "images/{rest:path}", "audio/{rest:path}")),
    *(
        (method, f"/v1/{name}{rest}")
        for name in ("files", "batches", "messages/batches")
        for rest, methods in (("", ("GET", "POST")), ("/{rest:path}", ("GET", "POST", "DELETE")))
        for method in methods
    ),
)
"""Routes that are passed on unchanged."""
_KEEPING = ("/v1/responses", "/v1/conversations", "/v1/files", "/v1/batches", "/v1/messages/batches")
"""The beginnings of the paths of objects that an upstream stores."""


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """How a gateway uses memory.

    Args:
        top_k: The most items that are recalled for a turn; "auto" for those that answer (`Memory.search`).
        tokens: The most tokens of all blocks in one prompt.
        turn_tokens: The most tokens of one block (see `tokens_of`).
        threshold: The least score of an item that is recalled; None for what fits the encoder (`memory.automatic`).
        prompts: Whether calls are kept as they were sent and answered, so that a model can be trained on them.
        words: When what the user says in a turn is stored: "at once", or "later", by `Gateway.resume`.
    """

    top_k: int | str = 8
    tokens: int = 1500
    turn_tokens: int = 500
    threshold: float | None = None
    prompts: bool = True
    words: Literal["at once", "later"] = "at once"


@dataclass(frozen=True, slots=True)
class MemoryBlock:
    """The block of memory in one message of the user.

    Args:
        episode: The newest episode that sent it.
        lines: The line that shows each item, by the item's id.
        at: When it was first sent.
        earlier: The lines of the blocks before it in the same prompt, by the index of their message. By them a conversation that
            went on has its blocks, even if another one has begun with the same words and the same answer since.
        tail: Digest of what followed the message when it was first sent, such as the beginning of an answer; "" for nothing. A
            call in which something else follows goes on with the turn.
    """

    episode: str = ""
    lines: Mapping[str, str] = field(default_factory=dict)
    at: str = ""
    earlier: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    tail: str = ""

    @property
    def text(self) -> str:
        return "\n".join([MARK, *self.lines.values()])

    @property
    def tokens(self) -> int:
        return tokens_of(self.text) if self.lines else 0

    @property
    def record(self) -> dict[str, Any]:
        """Return it as data to store."""
        return {name: getattr(self, name) for name in ("episode", "lines", "at", "earlier", "tail")}


@dataclass(frozen=True, slots=True)
class TurnMemory:
    """What a turn needs of the memory.

    Args:
        head: The newest entry of the journal when the memory was searched.
        digest: Digest of the conversation up to the message that begins its newest turn, in which `block` stands.
        tools: How the tools ended whose results the call brings.
        regenerated: The episode of an earlier answer to the same message in the same conversation, which is made again.
    """

    open: OpenMemory
    format: CallFormat
    head: int
    digest: str
    block: MemoryBlock
    tools: Sequence[ToolEnd] = ()
    regenerated: str = ""


@dataclass(slots=True)
class GatewayTurn:
    """A call that goes upstream. `mode` is what its answer's header says of the memory, "" for nothing; `memory` is None if none
    is used, and then `episode` is ""; `person` is the one that the token or the call names; `failure` is why memory failed."""

    content: bytes
    mode: str = ""
    memory: TurnMemory | None = None
    episode: str = ""
    tenant: str = ""
    person: str = ""
    failure: str = ""


class Gateway:
    """Answers calls by passing them to `upstream`, with memory from `memories`, which the token of each call selects. `others`
    says of whom other processes that serve them have turns to store.

    The way of a call is `answer` (who calls; with a neural encoder, its query is encoded with those of other calls that wait),
    `prepare` and `_with_memory` (what goes upstream, in a thread), `_forward` (there and back), `_finish` and `record` (how it
    ended, in a thread after the answer), and `_write_words` (what the user said).
    """

    def __init__(
        self,
        memories: OpenMemories,
        upstream: Upstream,
        workers: Executor,
        settings: GatewaySettings | None = None,
        others: UnstoredTurns | None = None,
    ) -> None:
        self.memories, self.upstream, self.workers, self._others = memories, upstream, workers, others
        self.settings = settings or GatewaySettings()
        memory = memories.of(new_access()).memory
        self._closing = self._ended = False
        self._finishing: dict[asyncio.Future[None], tuple[str, str] | None] = {}
        """The turns that are being stored; by rules, with the tenant and the person, whose next call waits for them."""
        self._unwritten: dict[str, OpenMemory] = {}
        """The memories of turns that a full disk, another failure of it or a lock did not let be stored, by their episodes."""
        threads = _threads(memory)
        self._lane = ThreadPoolExecutor(threads, "gateway-memory")
        self._queries = WaitingQueries() if threads > 1 else None
        load_writer(memory)  # before the first call would have to wait for it

    def streamed(self) -> dict[tuple[str, str], Streamed]:
        """Return the functions that answer, by method and path."""
        remembering = {("POST", format.path): partial(self.answer, format) for format in FORMATS}
        return {**remembering, **dict.fromkeys(_PASSED, self.pass_on)}

    async def pass_on(self, call: ServedCall, request: Request) -> Response:
        """Pass a call on unchanged."""
        call.access.require("write" if request.method == "DELETE" else "read")
        if call.headers.get("content-type", "").lower().startswith("multipart/form-data"):
            if not call.raw.lstrip().startswith(
                b"--"
            ):  # an upstream might read it as something else, which was not checked
                raise NotServed(
                    "The body is no form of parts, as its Content-Type says.", "Send one that begins with --."
                )
            named = form_names_kept(call.raw)
        else:
            named = names_kept(await self._parse(call.raw)) if call.raw else ""
        self._check_kept(call.access, request.scope["path"], named)
        return await self._forward(GatewayTurn(call.raw, tenant=call.access.tenant), request)

    async def answer(self, format: CallFormat, call: ServedCall, request: Request) -> Response:
        """Answer a call of a format that memory can be put into.

        Args:
            format: Reads the call, and puts memory into it.
            call: The call with its headers, its body and the caller's access.
            request: The request itself, for its path and its end.
        """
        call.access.require("read")
        raw = whole_characters(call.raw)
        call, bounds = replace(call, body=await self._parse(raw), raw=raw), bounds_in(call.headers)
        self._check_kept(call.access, format.path, names_kept(call.body))
        person = call.access.user_id or bounds.get("user_id", "")
        if before := [done for done, whose in self._finishing.items() if whose == (call.access.tenant, person)]:
            await asyncio.wait(before, timeout=SOON)
        if self._others is not None and person:
            await self._others.stored((call.access.tenant, person), SOON)
        if self._queries is not None and call.headers.get("x-keepworth-memory", "").lower() != "off":
            await self._queries.encode(partial(self._query_of, format, call))
        turn = await in_thread(self._lane, self.prepare, format, call, bounds)
        turn.tenant, turn.person = call.access.tenant, person
        return await self._forward(turn, request)

    async def _parse(self, raw: bytes) -> dict[str, Any]:
        """Parse a body as a JSON object; a long one, such as one with pictures, in a thread, so that no other call waits."""
        if len(raw) < _LONG_BODY:
            return json_object(raw)
        return await asyncio.get_running_loop().run_in_executor(self.workers, json_object, raw)

    def _query_of(self, format: CallFormat, call: ServedCall) -> tuple[Embedder, str] | None:
        """Return the encoder of a call's memory, and what the call asks, as it is searched for; None if it asks nothing."""
        pieces = format.pieces(call.body)
        if not pieces or not (places := format.turns(pieces)):
            return None
        memory, query = self.memories.of(call.access).memory, strip_host_words(pieces[places[-1]])[:_LONGEST_QUERY]
        embedder = memory.store.embedder
        return None if embedder is None or not asks(query) else (embedder, memory._unsaid(query))

    def _check_kept(self, access: Access, path: str, field: str) -> None:
        """Raise NotServed for a call about objects that the upstream stores, if the token does not open the whole memory: such a
        call goes out with the upstream's key, and could reach the objects of others. `field` names them in the body, if any
        does."""
        if access.whole and (not access.tenant or self.upstream.tenants_apart):
            return
        if named := path if path.startswith(_KEEPING) else field:
            raise NotServed(
                f"{named} refers to something stored at the upstream. All callers share its key, so this token may not use it.",
                "Put the text or the file into the call itself.",
                status=403,
                about=named,
            )

    # -- before ---------------------------------------------------------------------------------------------------------

    def prepare(self, format: CallFormat, call: ServedCall, bounds: Mapping[str, str]) -> GatewayTurn:
        """Return what is sent upstream for a call, without memory if that fails.

        Args:
            format: Reads the call, and puts memory into it.
            call: The call, whose header X-Keepworth-Memory says whether memory is on, only read, or off.
            bounds: The user, the agent and the session that the headers name.

        Raises:
            NotServed: If the caller made a mistake.
        """
        mode = call.headers.get("x-keepworth-memory", MODES[0]).lower()
        if mode not in MODES:
            raise NotServed(f"X-Keepworth-Memory is {mode!r:.40}.", f"Say one of {', '.join(MODES)}.")
        if mode == "on" and "write" not in call.access.roles:
            mode = "read"
        pieces = format.pieces(call.body) if mode != "off" else None
        if not pieces:  # memory is off, or the body is wrong, which the upstream will say
            return GatewayTurn(call.raw)
        open = self.memories.of(call.access)
        try:
            turn = None
            while turn is None:  # again if something was erased at that moment
                turn = self._with_memory(mode, open, format, call, bounds, pieces)
            return turn
        except InvalidScope as error:
            raise NotServed(error.message, error.fix, status=403) from error
        except Exception as error:
            _report_failure("a call goes on without memory", error)
            return GatewayTurn(call.raw, "failed", failure=f"{type(error).__name__}: {error}")

    def _with_memory(
        self,
        mode: str,
        open: OpenMemory,
        format: CallFormat,
        call: ServedCall,
        bounds: Mapping[str, Any],
        pieces: list[Any],
    ) -> GatewayTurn | None:
        """Return the turn with what the memory recalls for it, or None if something was erased meanwhile that it may quote."""
        store, scope = open.memory.store, open.memory.scopes.narrowed(**bounds)  # raises InvalidScope
        places = format.turns(pieces)
        if not places:
            return GatewayTurn(call.raw)
        newest = places[-1]
        query, rest = strip_host_words(pieces[newest]), pieces[newest + 1 :]
        tail = _digest(*(json.dumps(format.same(piece), sort_keys=True) for piece in rest)) if rest else ""
        regenerated, tools = "", tool_ends(rest) if mode == "on" and is_answered(rest) else []
        digests = _digests(scope.parts(), format, format.continues(call.body), pieces, places)
        head, before = _sent_before(store, digests, pieces)
        if newest in before and not is_answered(rest) and tail == before[newest].tail:
            seconds = _retried_within(call.headers)
            at, clock = before[newest].at, timestamp(store.clock())
            if not (at and seconds and later(at, seconds) >= clock):
                # The same words, in a new conversation, or once more in one that has gone on.
                regenerated = before[newest].episode if len(before) > 1 else ""
                del before[newest]
        for index, lines in before[max(before)].earlier.items() if before else ():
            if int(index) in before:
                before[int(index)] = replace(before[int(index)], lines=lines)
        live, recalled, after = None, Hits(), ""
        present = {id: line for block in before.values() for id, line in block.lines.items()}
        room = MemoryRoom(query, present)
        # A turn that is answered in part begins here, too, where nothing of it is known: the host has shortened the conversation
        # meanwhile, or an earlier call of it went by without memory.
        if newest not in before:
            _require_room(store)
            tools = []  # they ended before what is recalled now
            by = call.access.user_id or bounds.get("user_id", "")
            live = open.begin(query[:_LONGEST_QUERY], by=by, **bounds)
            spent = sum(block.tokens for block in before.values())
            room.tokens = min(self.settings.turn_tokens, self.settings.tokens - spent)
            # If neither token nor header names a person, nothing that belongs to a person is shown.
            narrower: dict[str, Any] = {} if scope.user else {"nobody": True}
            floor = floor_of(open.memory) if self.settings.threshold is None else self.settings.threshold
            if asks(query):
                with store.database.reading():
                    # A session names a conversation, and all conversations of the person are searched.
                    # What the prompt holds already cannot be left out by chance.
                    options = {"floor": floor, "fits": room, "session_id": ALL, "present": list(present), **narrower}
                    recalled = live.search(top_k=self.settings.top_k, **options)
            after = before[max(before)].episode if before else ""
            earlier = {str(index): block.lines for index, block in before.items()}
            new = room.block(recalled)
            before[newest] = MemoryBlock(live.id, new.lines, timestamp(store.clock()), earlier, tail)
        sent_with = TurnMemory(open, format, head, digests[newest], before[newest], tools, regenerated)
        turn = GatewayTurn(call.raw, mode, sent_with, before[newest].episode)
        if blocks := {index: block.text for index, block in before.items() if block.lines}:
            sent = format.put(call.body, pieces, blocks)
            turn.content = json.dumps(sent, ensure_ascii=False, separators=(",", ":")).encode()
        if live is not None:
            receipt = self._receipt(turn.content, format, room, recalled, before)
            text = query if mode == "on" else ""
            if text and store.scan is not None:
                text = store.scan.storable(text)
            words = {
                "text": text,
                "scope": live.scope.parts(),
                "at": timestamp(store.clock()),
                "after": after,
                "asked": _last_question(store, pieces[:newest]),
            }
            sent = before[newest].record
            noted = words if text else None
            with store.database.together():  # the episode, its search, the block, the receipt and the words
                if not write_episode(live, since=head):
                    return None
                if not notes.begin_turn(store, digests[newest], sent, live.id, receipt, noted, since=head):
                    live.end("asked anew")
                    return None
        elif (trace := traces.current()) is not None:  # the turn goes on, perhaps in a trace of its own
            store.database.write(
                lambda connection: traces.join(connection, trace, turn.episode, timestamp(store.clock()))
            )
        return turn

    def _receipt(
        self, content: bytes, format: CallFormat, room: MemoryRoom, recalled: Hits, blocks: Mapping[int, MemoryBlock]
    ) -> dict[str, Any]:
        """Return what was recalled for a turn, and which items are in the prompt: as the model reads it if the upstream can say
        that, else in the bytes that are sent. The last of `blocks`, which are those of the prompt, is new. A block counts only in
        its own place, so that words which look like one do not."""
        new, body = blocks[max(blocks)], from_json(content)
        there, rendered = format.find_blocks(body), self.upstream.rendered(format.path, body)
        injected = {
            id
            for at, block in blocks.items()
            if there.get(at) == block.text and (rendered is None or block.text in rendered)
            for id in block.lines
        }
        most = self.settings.top_k
        first = room.recalled[:most] if isinstance(most, int) else ()
        ids = list(dict.fromkeys([*first, *(hit.item.id for hit in recalled)]))
        no_room = [id for id in ids if id in room.missing and id not in injected]
        return {
            "episode": new.episode,
            "decision": recalled.decision,
            "recalled": ids,
            "injected": [id for id in dict.fromkeys((*ids, *injected)) if id in injected],
            "new": [id for id in new.lines if id in injected],
            "lines": {id: line for block in blocks.values() for id, line in block.lines.items() if id in injected},
            "missing": [*(id for block in blocks.values() for id in block.lines if id not in injected), *no_room],
            "no_room": no_room,
            "seen_in": "what was sent" if rendered is None else "the rendered prompt",
            "tokens": sum(block.tokens for block in blocks.values()),
            "sha256": hashlib.sha256(content).hexdigest(),
            "bytes": len(content),
        }

    # -- upstream -------------------------------------------------------------------------------------------------------

    async def _forward(self, turn: GatewayTurn, request: Request) -> Response:
        """Send a call upstream and return the answer, unless the caller hangs up first."""
        asked = asyncio.ensure_future(
            self.upstream.send(
                request.method,
                request.scope["path"],  # `request.url` would read an escaped "?" as the beginning of a query
                request.scope["query_string"].decode("latin-1"),
                request.headers,
                turn.content,
                episode=turn.episode,
            )
        )
        left = asyncio.ensure_future(hung_up(request))
        try:
            await asyncio.wait({asked, left}, return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                asked.cancel()
                self._finish(turn, 0, b"", "", "stopped by the caller")
                return Response(status_code=499)
            answer = await asked
        except Unreachable as error:
            self._finish(turn, 0, b"", "", f"stopped by {error.kind}")
            raise NotServed(error.message, error.fix, status=504 if error.kind == "timeout" else 502) from error
        except (NotServed, asyncio.CancelledError):  # the latter if the server closes meanwhile
            self._finish(turn, 0, b"", "", "stopped by the gateway")
            raise
        finally:
            asked.cancel()
            left.cancel()
        ours = {"X-Keepworth-Memory": turn.mode, "X-Keepworth-Episode": turn.episode}
        headers = {**answer.headers, **{name: value for name, value in ours.items() if value}}
        if answer.whole is None:
            return StreamingResponse(self._copy(turn, answer), answer.status, headers)
        copy = answer.whole if len(answer.whole) <= _LONGEST_READ else b""
        self._finish(turn, answer.status, copy, answer.kind)
        return Response(answer.whole, answer.status, headers)

    async def _copy(self, turn: GatewayTurn, answer: UpstreamAnswer) -> AsyncIterator[bytes]:
        """Pass on the bytes as they come, and copy them for the episode. If the caller hangs up, so does this to the upstream."""
        copy, outcome = bytearray(), "stopped by the caller"
        try:
            async for part in answer.parts():
                if turn.memory is not None and len(copy) < _LONGEST_REPLY:
                    copy += part
                yield part
            outcome = ""
        except (Unreachable, asyncio.CancelledError) as error:
            # The status is sent already, but clients understand an error event.
            if isinstance(error, Unreachable):
                outcome, says = "stopped by the upstream", str(error)
            elif self._closing:
                outcome, says = "stopped by the gateway", "The server is closing. Ask again once it runs."
            else:
                raise
            broken = (FORMATS[0] if turn.memory is None else turn.memory.format).broken(says)
            event = f"event: {broken['type']}\n" if "type" in broken else ""
            yield f"\n\n{event}data: {json.dumps(broken)}\n\n".encode()
        finally:
            self._finish(turn, answer.status, bytes(copy), answer.kind, outcome)
            await answer.close()

    # -- after ----------------------------------------------------------------------------------------------------------

    def _finish(self, turn: GatewayTurn, status: int, copy: bytes, kind: str, outcome: str = "") -> None:
        """Record the end of a turn in a thread, as the caller has its answer already. `outcome` is "" if the status says it."""
        if turn.memory is None:
            return
        if self._ended:  # the caller did not even take the error event in time
            self.record(turn, status, copy, kind, outcome)
            return
        # A writer that asks a model takes long, and runs in other threads, so that no call waits for it.
        writer = turn.memory.open.memory.writer
        slow = not getattr(writer, "by_rules", writer is None)
        done = asyncio.get_running_loop().run_in_executor(
            self.workers if slow else self._lane, self.record, turn, status, copy, kind, outcome
        )
        whose = self._finishing[done] = (turn.tenant, turn.person) if turn.person and not slow else None
        if self._others is not None and whose is not None:
            self._others.count(whose, 1)
        done.add_done_callback(self._stored)

    def _stored(self, done: asyncio.Future[None]) -> None:
        """Note that a turn is stored, so that nobody waits for it any more."""
        whose = self._finishing.pop(done)
        if self._others is not None and whose is not None:
            self._others.count(whose, -1)

    async def end(self, calls: Collection[asyncio.Task[None]]) -> None:
        """Wait until all turns are recorded, and close the connections to the upstream. `calls` are those that were cancelled, as
        the server's patience is over."""
        self._closing = True
        if calls:
            await asyncio.wait(calls, timeout=SOON)
        await asyncio.gather(*self._finishing, return_exceptions=True)
        self._ended = True
        self._lane.shutdown(wait=False)
        if self._queries is not None:
            self._queries.close()
        await self.upstream.close()

    def record(self, turn: GatewayTurn, status: int, copy: bytes, kind: str, outcome: str = "") -> None:
        """Record how a turn with memory ended, and store the user's words in it.

        Args:
            turn: The turn, as `prepare` returned it.
            status: The status of the answer; 0 for none.
            copy: The bytes of the answer, or their beginning.
            kind: The answer's content type.
            outcome: How it ended, if the status does not say that.
        """
        memory, episode = turn.memory, turn.episode
        assert memory is not None
        store = memory.open.memory.store
        try:
            with store.database.reading():
                live, words = memory.open.episode(episode), notes.body(store, notes.TURN, episode)
                if turn.mode == "on":
                    self._take_signals(memory, live)
                with store.database.together():
                    if 0 < status < 400:
                        reply = memory.format.reply(copy, kind)
                        self._act(store, live, reply)
                        self._note_answer(store, live, reply)
                        if reply_words := reply.words.strip():
                            # Conversations that begin with the same words are distinguished by what the model answered.
                            digest = _digest("answered", memory.digest, reply_words)
                            notes.keep_block(store, digest, memory.block.record, since=memory.head)
                        if self.settings.prompts and turn.mode == "on":
                            self._keep_sent(turn, memory, live, copy, kind)
                    live.end(outcome or ("completed" if status < 400 else f"stopped by the upstream's {status}"))
            if words is not None and self.settings.words == "at once":
                self._write_words(memory.open, episode, words)
            for id, open in list(self._unwritten.items()):  # the disk takes what it refused
                if words := notes.body(open.memory.store, notes.TURN, id):
                    self._write_words(open, id, words)
                self._unwritten.pop(id, None)
        except (Busy, StorageFailed, StorageFull) as error:  # the same may go well the next time
            self._unwritten[episode] = memory.open
            _report_failure("a turn waits to be stored", error)
        except UnknownEpisode:  # it was erased meanwhile, with all that happened in it
            return
        except Exception as error:
            _report_failure("a turn was not recorded whole", error)

    def _take_signals(self, memory: TurnMemory, live: LiveEpisode) -> None:
        """Take how tools ended, and that an answer is made again, for the outcomes of what was shown before."""
        for tool in memory.tools:
            broken = bool(tool.failed)
            if tool.failed is not None or is_check(tool.command):
                live.signal(command=tool.command, failed=broken, output=tool.output)
        if memory.regenerated:
            with contextlib.suppress(UnknownEpisode):  # it was erased meanwhile
                memory.open.episode(memory.regenerated).signal("regenerated")

    def _keep_sent(self, turn: GatewayTurn, memory: TurnMemory, live: LiveEpisode, copy: bytes, kind: str) -> None:
        """Keep the call as it was sent and answered. A later one of the same turn, after tools answered, replaces it."""
        store = memory.open.memory.store
        call = sent_call(turn.content, copy, kind, None if store.scan is None else store.scan.storable)
        if call:
            items = {id for lines in (memory.block.lines, *memory.block.earlier.values()) for id in lines}
            kept_calls.keep_call(store, live.id, call, live.scope, items, since=memory.head)

    def _note_answer(self, store: Store, live: LiveEpisode, reply: SpokenReply) -> None:
        """Note the id of an answer, by which evaluations name it."""
        if reply.id:
            store.database.write(
                lambda connection: traces.note_answer(connection, reply.id, live.id, timestamp(store.clock()))
            )

    def _act(self, store: Store, live: LiveEpisode, reply: SpokenReply) -> None:
        """Record a reply as the action of the turn's episode. A later reply, after tools answered, replaces an earlier one."""
        if not live._waiting and reply.words.strip():
            receipt = notes.body(store, notes.RECEIPT, live.id)
            if receipt is not None and receipt["decision"] and not live._rewarded():
                live._waiting = [receipt["decision"]]
        if live._waiting:
            tools = f"(calls {', '.join(reply.tools)})" if reply.tools else ""
            done = worded(reply.words or tools, "the answer")
            live.act(done if done.strip() else "(an answer without words)")

    def _write_words(self, open: OpenMemory, episode: str, words: Mapping[str, Any]) -> None:
        """Store what the user said in the turn, once, and nothing that the model said."""
        memory, text = open.memory, str(words["text"])
        _, user, agent, _ = words["scope"]
        # A fact outlives the conversation it was said in.
        options: dict[str, Any] = {"user_id": user or ALL, "agent_id": agent or ALL, "episode": episode}
        before = None
        with contextlib.suppress(UnknownEpisode):  # the turn before was erased meanwhile
            before = open.episode(words["after"]) if words.get("after") else None
            if before is not None and text:
                before.signal(reply=text[:_LONGEST_QUERY])
        with notes.ending_turn(memory.store, episode) as done:
            with contextlib.suppress(RefusedText):  # it would be refused again the next time
                if memory.writer is not None:
                    earlier = {"before": before.task} if before is not None else {}
                    message = {"role": "user", "content": text, "said_at": words.get("at", ""), **earlier}
                    message["asked"] = words.get("asked", "")
                    memory.add([message], infer=True, source="gateway", **options)
                elif says_something(text):
                    memory.add_many([text], provenances=[Provenance("gateway", speaker="user")], **options)
            done()

    def resume(self, open: OpenMemory) -> None:
        """Store the turns that are not stored yet: those of a killed process, and all with `words="later"`."""
        for id, words in notes.waiting_turns(open.memory.store):
            try:
                self._write_words(open, id, words)
            except KeepworthError as error:
                _LOG.warning("a turn could not be written: %s", error)


def _last_question(store: Store, pieces: Sequence[Any]) -> str:
    """Return the end of the model's last answer, which may hold the question that the user answers."""
    question = clean(last_answer(pieces))[-_LONGEST_QUESTION:]
    return store.scan.storable(question) if question and store.scan is not None else question


def _require_room(store: Store) -> None:
    """Raise StorageFull where the disk of a memory's file is as good as full. A turn is stored after its answer, whose header
    says by then that memory is on."""
    try:
        left = shutil.disk_usage(store.database.path).free
    except OSError:  # on a server, or in the process alone
        return
    if left < _LEAST_ROOM:
        raise StorageFull(f"no room left for {store.database.path}: free some space; nothing was written")


def _report_failure(what: str, error: Exception) -> None:
    """Log a failure of memory: in a line where the error names its fix, else with its traceback."""
    if isinstance(error, KeepworthError):
        _LOG.warning("%s: %s", what, error)
    else:
        _LOG.warning("%s: %s", what, type(error).__name__, exc_info=error)


def _threads(memory: Memory) -> int:
    """Return how many threads recall and record. Python runs one thread at a time, and threads that give way after every read of
    the file delay one another and the event loop, so it is one; with a neural encoder, which computes outside Python and takes
    longer than all the rest, it is two."""
    embedder = memory.store.embedder
    return 1 if embedder is None or isinstance(embedder.encoder, HashingEncoder) else 2


@dataclass(slots=True)
class MemoryRoom:
    """A filter of hits that lets pass those for which the prompt has room, a long one with the passage that fits the question.
    All that pass fit together, so the policy can choose freely among them, and what it chooses is shown.

    Args:
        query: The question.
        there: The lines that are in the prompt already, by the ids of their items.
        tokens: The most tokens of a new block.
        recalled: Ids of all hits of the last call, best first.
        missing: Those of them for which there was no room.
    """

    query: str
    there: Mapping[str, str]
    tokens: int = 0
    recalled: tuple[str, ...] = ()
    missing: frozenset[str] = frozenset()

    def block(self, hits: Sequence[Hit]) -> PromptBlock:
        """Return the lines that show the hits, without what the prompt holds already."""
        return block(hits, self.query[:_LONGEST_QUERY], self.tokens, head=MARK, there=self.there)

    def __call__(self, hits: Sequence[Hit]) -> list[Hit]:
        shown, self.recalled = self.block(hits), tuple(hit.item.id for hit in hits)
        self.missing = frozenset(shown.missing)
        here = {
            *shown.lines,
            *(id for id in shown.shown_ids if id in self.there),
        }  # without one that says the same as another
        return [hit for hit in hits if hit.item.id in here]


def _digests(
    scope: Sequence[str], format: CallFormat, name: str, pieces: Sequence[Any], places: Sequence[int]
) -> dict[int, str]:
    """Return digests of the conversation up to and including each of the pieces at `places`, within a scope."""
    state = hashlib.sha256(json.dumps([*scope, format.path, name]).encode())
    digests = {}
    for index, piece in enumerate(pieces):
        state.update(hashlib.sha256(json.dumps(format.same(piece), sort_keys=True).encode()).digest())
        digests[index] = state.hexdigest()
    return {index: digests[index] for index in places}


def _sent_before(store: Store, digests: Mapping[int, str], pieces: Sequence[Any]) -> tuple[int, dict[int, MemoryBlock]]:
    """Return the newest entry of the journal, and the blocks that were sent before, by indices of turns. `digests` are those of
    the conversation up to each turn."""
    places = list(digests)
    answered = {
        index: _digest("answered", digests[index], words)
        for index, end in zip(places, [*places, len(pieces)][1:], strict=True)
        if (words := first_answer(pieces[index + 1 : end]))
    }
    with store.database.reading() as connection:
        head, noted = store.head(), notes.bodies(connection, notes.BLOCK, [*digests.values(), *answered.values()])
    records = {index: noted.get(answered.get(index, "")) or noted.get(digest) for index, digest in digests.items()}
    return head, {
        index: MemoryBlock(
            record["episode"], record["lines"], record.get("at", ""), record.get("earlier", {}), record.get("tail", "")
        )
        for index, record in records.items()
        if record
    }


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _retried_within(headers: Mapping[str, str]) -> float:
    """Return the seconds within which the same words count as a retry; 0 if the caller says that it is none."""
    count = headers.get("x-stainless-retry-count", "")
    if not count.isdecimal():
        return RETRY_SECONDS
    return SDK_RETRY_SECONDS if int(count) else 0.0
