"""What the log is asked is answered by an index: it does not take longer the longer the log is."""

from __future__ import annotations

from keepworth.memory.memory import Memory
from keepworth.memory.store import decision_log, log
from keepworth.memory.store.connection import select


def scans(memory: Memory, query: str, values: tuple[object, ...]) -> list[str]:
    with memory.store.database.reading() as connection:
        return [row[3] for row in select(connection, f"EXPLAIN QUERY PLAN {query}", values) if "SCAN" in row[3]]


def test_choices_and_entries_of_an_episode_are_found_by_the_index() -> None:
    memory = Memory(encoder=None)
    with memory.episode("x"):
        pass
    for table in ("decisions", "events"):
        assert scans(memory, f"SELECT 1 FROM {table} WHERE {decision_log.IN_EPISODE}", ("e",)) == []


def test_many_rewards_are_read_as_each_one_would_be() -> None:
    memory = Memory(encoder=None, seed=1)
    memory.add_many([f"part {n} wants oil" for n in range(20)])
    for n in range(30):
        if n % 3:
            hits = memory.search(f"part {n % 20}")
            memory.reward(hits.decision, n / 30)
        else:
            with memory.episode(f"part {n % 20}") as episode:
                hits = episode.search(actions=("oil", "wait"))
                episode.act("oil")
                episode.search("then", actions=("oil", "wait"))
                episode.act("wait")
                if n % 2:
                    episode.step_reward(0.5)
                episode.reward(n / 30)
    memory.rollback(episode.id)
    with memory.store.database.reading() as connection:
        gone = log.cancelled(connection)
        news = log.news(connection, memory.scope, gone)
        scope_of = lambda id: memory.store.scope_named(connection, id)  # noqa: E731
        together = [about() for _, about in log.with_choices(connection, scope_of, news, gone)]
        alone = [about() for each in news for _, about in log.with_choices(connection, scope_of, [each], gone)]
        assert len(news) == 29
        assert repr(together) == repr(alone)  # repr: a step without a reward of its own has nan
        for each, (task, _, choices) in zip(news, together, strict=True):
            if each.episode and not each.decision:
                record = log.record(connection, scope_of, each.episode, gone, until=each.seq, items=each.items)
                assert record is not None
                assert (record.task, repr(list(record.choices))) == (task, repr(choices))
            else:
                assert repr([log.single(connection, each.decision)]) == repr(choices)
