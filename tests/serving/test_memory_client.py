"""What is true of a memory is true of one that is served: the same functions over `Memory`, `Client` and `AsyncClient`."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pytest

from keepworth import AsyncClient, Client, Memory, errors
from keepworth.memory import event_loop
from keepworth.memory.episode import LiveEpisode
from keepworth.serving import client as client_module
from keepworth.serving.access import ROLES, Tokens, new_access, tokens_of
from keepworth.serving.client import RemoteEpisode, ServerProblem
from keepworth.serving.verbs import VERBS
from tests.serving.memory_process import TOKEN, MemoryProcess


class Blocking:
    """An `AsyncClient`, or an episode of it, whose verbs are waited for."""

    def __init__(self, inner: Any, run: Callable[..., Any]) -> None:
        self._inner, self._run = inner, run

    def __getattr__(self, name: str) -> Any:
        there = getattr(self._inner, name)
        if name == "episode":
            return lambda *a, **k: BlockingEpisode(there(*a, **k), self._run)
        return (lambda *a, **k: self._run(there(*a, **k))) if callable(there) else there


class BlockingEpisode(Blocking):
    def __init__(self, manager: Any, run: Callable[..., Any]) -> None:
        self._manager = manager
        super().__init__(run(manager.__aenter__()), run)

    def __enter__(self) -> BlockingEpisode:
        return self

    def __exit__(self, *raised: Any) -> None:
        self._run(self._manager.__aexit__(*raised))


@pytest.fixture(params=["memory", "client", "async"])
def memory(request: pytest.FixtureRequest, process: MemoryProcess, tenant: str) -> Iterator[Any]:
    """An empty one: each test is a tenant of its own."""
    if request.param == "memory":
        with Memory(":memory:", encoder="hashing") as memory:
            yield memory
        return
    token = Tokens(tokens_of(process.file)).add(new_access(tenant=tenant, roles=ROLES))
    if request.param == "client":
        with Client(process.url, token) as client:
            yield client
        return
    loop = asyncio.new_event_loop()
    aclient = AsyncClient(process.url, token)
    yield Blocking(aclient, loop.run_until_complete)
    loop.run_until_complete(aclient.close())
    loop.close()


def test_client_adds_searches_and_explains(memory: Any) -> None:
    told = {"told": [1, None, "é"]}
    item = memory.add("Ana is allergic to peanuts", user_id="ana", metadata=told, event_time="2026-01-31")
    assert (item.text, item.scope.user, item.event_time) == ("Ana is allergic to peanuts", "ana", "2026-01-31T00:00:00")
    memory.add("Bob is allergic to cats", user_id="bob")
    hits = memory.search("allergic to peanuts", user_id="ana", explain=True)
    assert [hit.id for hit in hits] == [item.id]
    assert hits[0].item == item == memory.get(item.id)
    assert dict(item.metadata) == told
    assert sum(hits[0].why.terms.values()) == pytest.approx(hits[0].lexical)
    assert hits.text == "- Ana is allergic to peanuts"
    assert memory.search("peanuts", user_id="ana", kinds=["case"]) == []


def test_an_empty_list_of_kinds_finds_no_item(memory: Any) -> None:
    item = memory.add("Ana drinks tea", user_id="ana")
    for kinds, found in (([], []), (["case"], []), (["fact"], [item.id]), (None, [item.id])):
        assert [hit.id for hit in memory.search("tea", user_id="ana", kinds=kinds)] == found
        assert [listed.id for listed in memory.get_all(user_id="ana", kinds=kinds)] == found


def test_superseded_item_is_found_in_the_past(memory: Any) -> None:
    old = memory.add("Ana lives in Oslo", event_time="2025-01-01")
    new = memory.supersede(old.id, "Ana lives in Rome", event_time="2026-01-01")
    assert [hit.id for hit in memory.search("where does Ana live")] == [new.id]
    assert [hit.id for hit in memory.search("where does Ana live", as_of="2025-06-01")] == [old.id]
    assert memory.get(old.id).superseded_by == new.id
    reworded = memory.update(new.id, "Ana lives in Rome, Italy", trust=0.5)
    assert (reworded.id, reworded.trust, reworded.revision) == (new.id, 0.5, 1)
    first, second, *_ = memory.history(new.id)
    assert (first.before, first.after.text) == (None, "Ana lives in Rome")
    assert (second.before.text, second.after.text) == ("Ana lives in Rome", "Ana lives in Rome, Italy")
    assert second.kind == "UPDATE"
    memory.delete(new.id)
    assert memory.get(new.id).deleted
    assert memory.get_all() == []
    assert [item.id for item in memory.get_all(all_states=True)] == [old.id, new.id]


def test_filters_work_through_the_client(memory: Any) -> None:
    memory.add("a red hat", metadata={"year": 2020, "team": "red"})
    kept = memory.add("a red scarf", metadata={"year": 2024, "user": {"city": "Oslo"}})
    where = {"year": {"$gte": 2022}, "user.city": "Oslo"}
    assert [hit.id for hit in memory.search("red", where=where)] == [kept.id]
    assert [item.id for item in memory.get_all(where=where)] == [kept.id]
    for ask in (partial(memory.search, "red"), memory.get_all):
        with pytest.raises(errors.MemoryProblem, match=r"where\['year'\]\['\$near'\]"):
            ask(where={"year": {"$near": 2022}})


def test_an_episode_is_recorded_rewarded_and_undone(memory: Any) -> None:
    shown = memory.add("reset: hold the button")
    with memory.episode("reset the router") as episode:
        hits = episode.search("reset", top_k=1)
        episode.act("hold the button")
        episode.step_reward(0.5)
        written = episode.remember("holding the button helped")
        outcome = episode.reward(1.0)
    assert outcome.applied
    assert memory.get(shown.id).values.total == 1.0
    record = memory.episode_record(episode.id)
    assert [each.item for each in record.shown] == [shown.id]
    assert record.task == "reset the router"
    assert [term.value for term in record.rewards] == [1.0]
    assert [decision.chosen for decision in record.decisions] == [(shown.id,)]
    assert hits.decision == record.decisions[0].id
    assert memory.episodes() == [episode.id]
    assert memory.pending() == []
    assert written.id in memory.rollback(episode.id).changed
    assert memory.get(shown.id).values.credited == 0
    assert memory.search("holding the button helped", mode="lexical", kinds=["fact"])[0].id == shown.id


def test_one_search_is_rewarded_later_and_the_ledger_says_so(memory: Any) -> None:
    items = memory.add_many(["plan a trip by train", "plan a trip by plane"])
    hits = memory.search("plan a trip", top_k=1)
    memory.reward(hits.decision, 1.0, by="ana")
    statement = memory.ledger(items=[item.id for item in items])
    assert {account.item for account in statement.accounts} == {item.id for item in items}
    assert statement.rewarded == 1
    assert memory.worth(hits[0].id, "plan a trip").seen == 1.0
    assert memory.rollback(rewarder="ana").cancelled >= 1


@pytest.mark.parametrize(
    "name",
    [
        "\u0639\u0644\u06cc\u200c\u0631\u0636\u0627",
        "\u0db4\u0dca\u200d\u0dbb\u0dd2\u0dba\u0d82\u0d9a\u0dcf",
        "\u0d05\u0d35\u0d28\u0d4d\u200d",
        "\u5c71\u7530\u3000\u592a\u90ce",
    ],
)
def test_names_in_any_script_are_accepted(memory: Any, name: str) -> None:
    item = memory.add("I like tea", user_id=name)
    hits = memory.search("tea", user_id=name)
    assert memory.reward(hits.decision, 1.0, by=name).applied
    with memory.episode("make tea", user_id=name, by=name) as episode:
        assert episode.search("tea")[0].id == item.id
        episode.reward(1.0)
    assert memory.rollback(rewarder=name).cancelled >= 1
    assert memory.erase(user_id=name).ids == (item.id,)


@pytest.mark.parametrize(
    "name",
    ["\u202eana", "ana\u00ad", "ana\u2028", "ana\x7f", "ana\u00a0", "\u200c\u200d", " ", "ana ", " ana", "\u3000ana"],
)
def test_invalid_name_raises_invalid_scope(memory: Any, name: str) -> None:
    decision = memory.search("tea").decision
    for call in (
        partial(memory.add, "I like tea", user_id=name),
        partial(memory.search, "tea", agent_id=name),
        partial(memory.get_all, session_id=name),
        partial(memory.reward, decision, 1.0, by=name),
    ):
        with pytest.raises(errors.InvalidScope, match=r"is blank|cannot be seen|begins or ends with a space"):
            call()
    with pytest.raises(errors.InvalidScope, match=r"^by .*(blank|cannot|begins)"), memory.episode("make tea", by=name):
        pass


def test_pages_follow_each_other(memory: Any) -> None:
    made = memory.add_many([f"fact {number}" for number in range(7)], user_id="ana")
    memory.add("another's", user_id="bob")
    first = memory.get_all(user_id="ana", limit=3)
    rest = memory.get_all(user_id="ana", limit=10, after=first[-1].id)
    assert [each.id for each in first + rest] == [each.id for each in made]
    assert memory.get_all(kinds=["case"]) == []
    assert memory.delete_all(user_id="ana") == 7
    assert [each.text for each in memory.get_all()] == ["another's"]


def test_snapshots_differences_and_erasing(memory: Any) -> None:
    before = memory.snapshot()
    item = memory.add("a secret", user_id="ana")
    (difference,) = memory.diff(before)
    assert (difference.id, difference.before, difference.after.text) == (item.id, None, "a secret")
    back = memory.rollback(since=before)
    assert memory.get_all() == []
    memory.rollback(back.id)
    assert [each.id for each in memory.get_all()] == [item.id]
    assert memory.erase(user_id="ana").ids == (item.id,)
    with pytest.raises(errors.UnknownItem, match="erased on purpose"):
        memory.get(item.id)
    other = memory.add("another")
    assert memory.forget(other.id) is None
    assert memory.forget(other.id, purge_history=True).ids == (other.id,)


REFUSED: list[tuple[type[Exception], Callable[[Any], Any]]] = [
    (errors.UnknownItem, lambda m: m.get("m999")),
    (errors.UnknownItem, lambda m: m.get("../../etc")),
    (errors.UnknownItem, lambda m: m.get("")),
    (errors.UnknownItem, lambda m: m.get("é\x00")),
    (errors.UnknownItem, lambda m: m.update("m999", "x")),
    (errors.UnknownItem, lambda m: m.get_all(after="nonsense")),
    (errors.UnknownEpisode, lambda m: m.reward("nobody", 1.0)),
    (errors.UnknownEpisode, lambda m: m.add("x", episode="e1")),
    (errors.UnknownSnapshot, lambda m: m.rollback(since="s999")),
    (errors.InvalidText, lambda m: m.add("\ud800")),
    (errors.InvalidText, lambda m: m.add_many("one")),
    (errors.InvalidText, lambda m: m.update(m.add("x").id)),
    (errors.InvalidText, lambda m: m.add("x", metadata={"a": float("nan")})),
    (errors.InvalidTime, lambda m: m.add("x", event_time="yesterday")),
    (errors.InvalidFilter, lambda m: m.search("x", top_k=0)),
    (errors.InvalidFilter, lambda m: m.search("x", colour="red")),
    (errors.InvalidFilter, lambda m: m.rollback()),
    (errors.InvalidFilter, lambda m: m.forget()),
    (errors.InvalidReward, lambda m: m.reward("e1", float("nan"))),
    (errors.InvalidReward, lambda m: m.reward("e1", "good")),
    (errors.InvalidScope, lambda m: m.delete_all()),
    (errors.InvalidScope, lambda m: m.erase()),
    (errors.InvalidTime, lambda m: m.add([{"role": "user", "content": "hi", "said_at": "soon"}], infer=True)),
    (errors.ClosedEpisode, lambda m: acted(m)),
]


def acted(memory: Any) -> None:
    with memory.episode("a task") as episode:
        episode.act("done without a search")


def test_client_and_memory_raise_the_same_errors(memory: Any) -> None:
    for number, (kind, does) in enumerate(REFUSED):
        before = len(memory.get_all(all_states=True))
        try:
            does(memory)
        except kind as refusal:
            assert str(refusal)  # noqa: PT017
            assert ".mem" not in str(refusal), "where the file lies is nobody's business"  # noqa: PT017
        else:
            pytest.fail(f"number {number} was not refused with {kind.__name__}")
        assert len(memory.get_all(all_states=True)) - before in (0, 1)


def test_a_misspelt_keyword_is_answered_with_the_right_one(memory: Any) -> None:
    for call, meant in (
        (lambda: memory.search("x", topk=1), "top_k"),
        (lambda: memory.add("x", userid="ana"), "user_id"),
        (lambda: memory.get_all(usr_id="ana"), "user_id"),
        (lambda: memory.episode("a task", userid="ana"), "user_id"),
        (lambda: memory.reward("e1", 1.0, sorce="user"), "source"),
        (lambda: memory.forget("m1", purge_histry=True), "purge_history"),
        (lambda: memory.delete("m1", episod="e1"), "episode"),
    ):
        with pytest.raises(errors.InvalidFilter, match=rf"[Dd]id you mean '?{meant}\b"):
            call()


def test_client_methods_match_those_of_memory() -> None:
    """Those that hand over functions, or a bank, are for where the file is."""
    here = {"apply", "bank", "commit", "close", "propose", "policy", "path", "read_only"}
    here |= {"within", "answer", "choose", "flush", "scope", "together"}

    def public(names: Iterable[str]) -> set[str]:
        return {name for name in names if not name.startswith("_")}

    assert public(vars(Client)) == public(dir(Memory)) - here | {"close", "receipt"}
    local = {"observe", "apply", "reward_range", "decisions", "taken"}
    assert public(vars(RemoteEpisode)) == public(vars(LiveEpisode)) - local
    for mine, theirs in ((Client, Memory), (RemoteEpisode, LiveEpisode)):
        for name in public(vars(mine)) - {"close", "receipt"}:
            wanted, given = (inspect.signature(getattr(each, name)).parameters for each in (theirs, mine))
            free = any(value.kind is value.VAR_KEYWORD for value in given.values())
            assert set(given) - {"options"} <= set(wanted) | {"options"}, name
            assert free or set(wanted) == set(given), name


def test_the_server_takes_every_argument_of_the_embedded_verbs() -> None:
    hides = {"nobody"}  # the server says itself whose items a caller sees
    for verb in (verb for verb in VERBS if verb.original is not None):
        parameters = list(inspect.signature(verb.original).parameters.values())[1:]
        arguments = {each.name for each in parameters if each.kind is not each.VAR_KEYWORD}
        assert arguments - hides <= set(verb.takes), verb.name


def test_missing_server_and_wrong_token_are_named(process: MemoryProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "PAUSE", 0.0)
    for stranger, says, status in (
        (Client("http://127.0.0.1:9"), "gave no answer", 0),
        (Client(process.url, "kw_wrong"), "missing, wrong or expired", 401),
    ):
        with stranger, pytest.raises(ServerProblem, match=says) as no:
            stranger.get_all()
        assert no.value.status == status


def test_an_address_may_end_as_that_of_the_gateway_does(process: MemoryProcess) -> None:
    for end in ("", "/", "/v1", "/v1/", "/v1/memory"):
        with Client(process.url + end, TOKEN) as client:
            assert client.get_all(user_id="nobody") == []


@pytest.mark.parametrize("url", ["", "127.0.0.1:8000", "ftp://127.0.0.1", "http://", "http://[::1", 8000])
def test_invalid_server_address_is_refused_with_an_example(url: Any) -> None:
    with pytest.raises(ServerProblem, match=r"is no address of a server\. Give it as it was"):
        Client(url)


def test_quarantined_items_are_listed_and_released(process: MemoryProcess) -> None:
    with Client(process.url, TOKEN) as memory:
        item = memory.add("the card is 4111 1111 1111 1111", user_id="ana")
        assert memory.search("card", user_id="ana") == []
        assert [each.id for each in memory.quarantined()] == [item.id]
        assert memory.release(item.id).status.value == "active"
        assert [hit.id for hit in memory.search("card", user_id="ana")] == [item.id]
        assert memory.quarantined() == []


def test_client_in_an_event_loop_warns_once_and_names_its_awaitable_twin(
    process: MemoryProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(event_loop, "_warned", False)

    async def look(of: Any) -> None:
        answer = of.get_all()
        if isinstance(of, AsyncClient):
            await answer

    asyncio.run(look(AsyncClient(process.url, TOKEN)))
    assert "AsyncClient" not in caplog.text
    with Client(process.url, TOKEN) as client:
        for _ in range(2):
            asyncio.run(look(client))
    assert caplog.text.count("a Client is used inside an event loop") == caplog.text.count("use AsyncClient") == 1
