"""Row-level security of a memory in Postgres: real roles, connected as themselves, with our code and with any SQL."""

from __future__ import annotations

import re
import shlex
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from keepworth import Memory
from keepworth.memory.errors import MemoryProblem, ReadOnly, UnknownItem
from keepworth.memory.item import Scope
from keepworth.memory.rights import grant, revoke, rights
from keepworth.memory.store import requests
from keepworth.memory.store.maintenance import check, compact, lay_in, reembed, statistics
from keepworth.memory.store.postgres import database
from keepworth.memory.store.postgres.rights import VIEWS
from keepworth.memory.store.transfer import exported
from tests.memory.stub_encoder import WordEncoder

pytestmark = pytest.mark.slow

CANARY = "xylofaxq"
"""In everything that is Bob's."""


@dataclass
class Served:
    """A memory of the role `keeper`, and two roles besides. Each is the address of the memory as that role opens it."""

    admin: str
    schema: str
    roles: dict[str, str]

    def at(self, role: str) -> str:
        return f"{self.admin.replace('://postgres:@', f'://{self.roles[role]}:@')}&schema={self.schema}"

    def connect(self, role: str) -> Any:
        import psycopg

        address = self.admin if role == "admin" else self.admin.replace("://postgres:@", f"://{self.roles[role]}:@")
        return psycopg.connect(address, autocommit=True, options=f"-c search_path={self.schema}")

    def run(self, role: str, *statements: str) -> list[tuple[Any, ...]]:
        with self.connect(role) as connection:
            for each in statements:
                cursor = connection.execute(each)
            return cursor.fetchall() if cursor.description else []


@pytest.fixture
def served(postgres: str) -> Iterator[Served]:
    end = uuid.uuid4().hex[:12]
    there = Served(postgres, f"t_{end}", {name: f"{name}_{end}" for name in ("keeper", "ann", "bob", "other")})
    for name in ("keeper", "ann", "bob", "other"):
        there.run("admin", f"CREATE ROLE {there.roles[name]} LOGIN")
    there.run("admin", f"CREATE SCHEMA {there.schema} AUTHORIZATION {there.roles['keeper']}")
    yield there
    there.run("admin", f"DROP SCHEMA {there.schema} CASCADE")
    for name in ("other", "bob", "ann", "keeper"):
        if there.run("admin", f"SELECT 1 FROM pg_roles WHERE rolname = '{there.roles[name]}'"):
            there.run("admin", f"DROP OWNED BY {there.roles[name]}", f"DROP ROLE {there.roles[name]}")


def told(memory: Memory, name: str, word: str) -> None:
    """Some of everything, of one person."""
    for n in range(30):
        memory.add(f"{word} likes tofu number {n}", user_id=name, metadata={"of": word}, source=f"{word} {n}")
    first = memory.add(f"{word} lives in Lisbon", user_id=name, agent_id=f"{word} helper", key=f"where {word} lives")
    memory.update(first.id, f"{word} lives in Porto")
    memory.supersede(first.id, f"{word} lives in Faro")
    memory.delete(memory.add(f"{word} is to be deleted", user_id=name, session_id=f"{word} talk").id)
    memory.add(f"{word} {'is told at length ' * 400}", user_id=name)
    with memory.episode(f"cook for {word}", user_id=name, by=word) as episode:
        episode.search(f"what does {word} like")
        episode.add(f"{word} likes rice")
        episode.act(f"cooked for {word}")
    episode.reward(1.0, by=word)
    with requests.noting(memory.store, f"request of {word}", word):
        memory.add(f"{word} asked over a network", user_id=name)
    requests.keep_answer(memory.store, f"request of {word}", word, f"an answer to {word}")


def filled(served: Served) -> Memory:
    """What is Ann's, what is Bob's, and what was done to both at once."""
    memory = Memory(served.at("keeper"), encoder=WordEncoder(), seed=1)
    told(memory, "ann", "Ann")
    told(memory, "bob", CANARY)
    memory.add(f"{CANARY} of nobody")
    memory.rollback(source=f"{CANARY} 3")
    return memory


def relations(served: Served) -> list[tuple[str, str, list[str]]]:
    """Name, kind and columns of whatever there is to read in the schema."""
    query = (
        "SELECT c.relname, c.relkind::text, array_agg(a.attname::text ORDER BY a.attnum) FROM pg_class c JOIN pg_attribute a ON "
        "a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped WHERE c.relnamespace = current_schema()::regnamespace AND "
        "c.relkind IN ('r', 'v', 'm', 'p', 'f', 'S') GROUP BY 1, 2 ORDER BY 1"
    )
    return [(name, kind, columns) for name, kind, columns in served.run("admin", query)]


def said(connection: Any, statement: str) -> str:
    """All that a statement tells: rows, notices, and its error with every detail."""
    import psycopg

    notices: list[str] = []

    def note(diagnostic: Any) -> None:
        notices.append(f"{diagnostic.message_primary} {diagnostic.message_detail} {diagnostic.context}")

    connection.add_notice_handler(note)
    try:
        if statement.startswith("COPY") and "STDOUT" in statement:
            with connection.cursor().copy(statement) as copy:
                told = b"".join(bytes(block) for block in copy).decode()
        else:
            cursor = connection.execute(statement)
            told = str(cursor.fetchall()) if cursor.description else ""
    except psycopg.Error as error:
        told = f"ERROR {error} {error.diag.message_detail} {error.diag.message_hint} {error.diag.context}"
    finally:
        connection.remove_notice_handler(note)
    return told + "\n".join(notices)


def test_any_sql_shows_what_was_granted_and_nothing_else(served: Served) -> None:
    memory = filled(served)
    grant(served.at("keeper"), served.roles["ann"], user_id="ann")
    grant(served.at("keeper"), served.roles["bob"], user_id="bob")
    memory.add(f"{CANARY} after the grant", user_id="bob")
    compact(memory.store)
    memory.close()
    served.run("admin", "ANALYZE")
    there = relations(served)
    places = {"ann": set[str](), "bob": set[str](), "keeper": set[str]()}
    errors = set[str]()
    for role, word in (("ann", CANARY), ("bob", "Ann (likes|lives|asked|is)|for Ann"), ("keeper", CANARY)):
        pattern = re.compile(rf"{word}|{CANARY.encode().hex() if role == 'ann' else b'Ann li'.hex()}", re.IGNORECASE)
        with served.connect(role) as connection:
            connection.execute(
                "CREATE FUNCTION pg_temp.leak(said text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE COST 0.0000001 AS "
                "$$ BEGIN RAISE NOTICE '%', said; RETURN true; END $$"
            )
            for name, _, columns in there:
                tried = [
                    f"SELECT * FROM {name}",
                    f"SELECT t::text FROM {name} t",
                    f"SELECT row_to_json(t)::text FROM {name} t",
                    f"SELECT count(*) FROM {name} t WHERE pg_temp.leak(t::text)",
                    f"COPY {name} TO STDOUT",
                    f"COPY (SELECT * FROM {name}) TO STDOUT",
                    f"EXPLAIN (ANALYZE, VERBOSE) SELECT * FROM {name}",
                    f"SELECT * FROM {name} TABLESAMPLE BERNOULLI (100)",
                    f"TABLE ONLY {name}",
                    f"SELECT * FROM {name} FOR SHARE",
                    f"WITH t AS (SELECT * FROM {name}) SELECT x::text FROM t, LATERAL (SELECT t.*) x",
                    f"DECLARE c CURSOR WITH HOLD FOR SELECT * FROM {name}",
                    "FETCH ALL FROM c",
                    "CLOSE ALL",
                ]
                for column in columns:
                    tried += [
                        f'SELECT "{column}"::text FROM {name}',
                        f'SELECT count(*) FROM {name} WHERE pg_temp.leak("{column}"::text)',
                        f'SELECT min("{column}"::text), max("{column}"::text) FROM {name}',
                        f'SELECT x."{column}"::text FROM own_scopes s FULL JOIN {name} x ON true',
                    ]
                for statement in tried:
                    found = said(connection, statement)
                    if found.startswith("ERROR"):
                        errors.add(found)
                    if pattern.search(found):
                        places[role].add(name)
                    assert role == "keeper" or not pattern.search(found), (role, statement, pattern.search(found))
    # What is looked for is there, so it could have been found.
    assert places["keeper"] >= {
        "items",
        "events",
        "touches",
        "words",
        "past_words",
        "word_counts",
        "decisions",
        "episodes",
        "names",
        "scopes",
        "facts_of_file",
    }
    assert places["ann"] == places["bob"] == set()
    assert any("permission denied" in each for each in errors)
    samples = "SELECT count(*) FROM pg_stats WHERE schemaname = current_schema()"
    assert served.run("ann", samples) == [(0,)]
    # And what is the role's own is there.
    assert served.run("ann", "SELECT count(*) FROM items WHERE text LIKE 'Ann%'") == [(36,)]
    assert served.run("ann", "SELECT count(*) FROM items WHERE text NOT LIKE 'Ann%'") == [(0,)]


def test_nothing_of_a_session_lifts_it(served: Served) -> None:
    """Settings, roles, functions of ours and views with more rights are tried; writes of every kind are refused."""
    memory = filled(served)
    grant(served.at("keeper"), served.roles["ann"], user_id="ann")
    hidden = memory.get_all(user_id="bob", limit=1)[0].id
    memory.close()
    keeper, bob, schema = served.roles["keeper"], served.roles["bob"], served.schema
    functions = served.run(
        "admin",
        "SELECT p.oid::regprocedure::text, p.prosecdef FROM pg_proc p WHERE pronamespace = current_schema()::regnamespace",
    )
    assert functions
    assert not any(definer for _, definer in functions)
    number = int(hidden[1:])
    with served.connect("ann") as connection:
        for statement in (
            f"SET ROLE {keeper}",
            f"SET SESSION AUTHORIZATION {bob}",
            f"CREATE FUNCTION {schema}.json_of(name) RETURNS json LANGUAGE sql AS 'SELECT null::json'",
            f"CREATE VIEW {schema}.v AS SELECT 1",
            "CREATE POLICY p ON items USING (true)",
            "ALTER TABLE items DISABLE ROW LEVEL SECURITY",
            "ALTER TABLE items NO FORCE ROW LEVEL SECURITY",
            "DROP POLICY keepworth_owner ON items",
            "INSERT INTO role_scopes SELECT role, '', 'bob', '', '' FROM role_scopes",
            "SELECT * FROM role_scopes",
            "SELECT * FROM restricted_roles",
            "SELECT chain FROM events",
            "SELECT events FROM events",
            "INSERT INTO items SELECT (i).* FROM (SELECT i FROM items i LIMIT 1) x",
            "INSERT INTO episodes(id, scope, task, began, rowid) VALUES ('x', 1, '', '', 1)",
            "INSERT INTO names(id, tenant, part, name) VALUES (1, '', 'user', 'bob')",
            "INSERT INTO scopes(tenant, \"user\", agent, session, tokens, total) VALUES ('', 'bob', '', '', '', '')",
            "UPDATE items SET scope = scope",
            f"UPDATE items SET text = '' WHERE n = {number}",
            f"DELETE FROM items WHERE n = {number}",
            "TRUNCATE items",
            "LOCK TABLE items IN EXCLUSIVE MODE",
            "SELECT * FROM items FOR UPDATE",
            f"GRANT SELECT ON items TO {bob}",
            "COMMENT ON TABLE items IS ''",
            "CREATE TEMP TABLE t(n bigint REFERENCES items(n))",
            f"ALTER ROLE {served.roles['ann']} BYPASSRLS",
        ):
            found = said(connection, statement)
            assert found.startswith(("ERROR", "no privileges were granted")), (statement, found)
            assert CANARY not in found.lower()
        connection.execute("SET row_security = off")
        assert "row-level security" in said(connection, "SELECT * FROM items")
        connection.execute("RESET ALL")
        for setting in ("app.tenant", "app.user", "keepworth.user", "keepworth.role"):
            connection.execute(f"SELECT set_config('{setting}', 'bob', false)")
        # Another search_path, or a table of one's own of the same name, is nothing to policies and views.
        connection.execute(
            "CREATE TEMP TABLE role_scopes AS SELECT current_user::text AS role, ''::text AS tenant, 'bob'::text AS \"user\""
        )
        connection.execute("CREATE TEMP VIEW own_scopes AS SELECT generate_series(1, 100)::bigint AS id")
        connection.execute(f"SET search_path = pg_temp, {schema}")
        assert (
            served.run("ann", "SELECT count(*) FROM items")
            == connection.execute("SELECT count(*) FROM items").fetchall()
        )
        assert CANARY not in said(connection, "SELECT * FROM items").lower()
        for view in VIEWS:
            assert CANARY not in said(connection, f"SELECT v::text FROM {schema}.{view} v").lower()
    # A hash over all that was written would confirm a guess: each role has others of its own.
    grant(served.at("keeper"), bob, user_id="bob")
    stored = {bytes(chain) for (chain,) in served.run("keeper", "SELECT chain FROM events")}
    shown = {
        role: {
            bytes(chain)
            for (chain,) in served.run(role, "SELECT chain FROM seen_entries UNION SELECT chain FROM seen_events")
        }
        for role in ("ann", "bob")
    }
    assert len(stored) == len(shown["ann"]) == len(shown["bob"])
    assert stored.isdisjoint(shown["ann"] | shown["bob"])
    assert shown["ann"].isdisjoint(shown["bob"])


def test_what_the_server_expects_of_a_query_says_nothing_of_others(served: Served) -> None:
    """EXPLAIN says how many rows it expects, by samples that the server keeps of all rows."""
    memory = filled(served)
    memory.add_many([f"{CANARY} often {n}" for n in range(300)], user_id="bob", metadata={"of": CANARY})
    compact(memory.store)
    served.run("admin", "ANALYZE")

    def expected(role: str, condition: str, table: str) -> str:
        ((line,), *_) = served.run(role, f"EXPLAIN SELECT 1 FROM {table} WHERE {condition}")
        return str(line)

    asked = [
        ("term = '{}'", "words"),
        ('metadata = \'{{"of": "{}"}}\'', "items"),
        ("text < '{}'", "items"),
        ("text LIKE '{}%'", "items"),
        ("source = '{} 1'", "events"),
        ("name = '{}'", "names"),
    ]
    # The owner's own queries show that there are samples, and that they differ.
    assert any(expected("keeper", c.format(CANARY), t) != expected("keeper", c.format("abc"), t) for c, t in asked)
    grant(served.at("keeper"), served.roles["ann"], user_id="ann")
    for again in (False, True):
        if again:
            memory.add_many([f"{CANARY} more often {n}" for n in range(300)], user_id="bob")
            served.run("admin", "ANALYZE")
        for condition, table in asked:
            one, other = (expected("ann", condition.format(word), table) for word in (CANARY, "abc"))
            assert one == other, (condition, again)
    assert check(memory.store) == []
    memory.close()


def test_it_finds_what_the_owner_finds_of_that_person(served: Served) -> None:
    """Searches, items, history, moments of the past, snapshots and episodes."""
    memory = filled(served)
    at = {"user_id": "ann"}
    before = memory.snapshot()
    memory.update("m2", "Ann prefers rice to tofu")
    memory.add("Ann drinks tea", user_id="ann")
    grant(served.at("keeper"), served.roles["ann"], user_id="ann")
    restricted = Memory(served.at("ann"), encoder=WordEncoder())

    def hits(of: Memory, query: str, **more: Any) -> list[tuple[str, str]]:
        return [(hit.id, hit.text) for hit in of.search(query, top_k=100, **more)]

    for query in ("tofu number 7", "where does Ann live", "tea", "rice", CANARY, "what is of nobody", "Lisbon"):
        assert set(hits(restricted, query)) == set(hits(restricted, query, **at)) == set(hits(memory, query, **at)), (
            query
        )
        by_meaning = [(hit.id, hit.score) for hit in memory.search(query, mode="dense", top_k=9, **at)]
        assert [(hit.id, hit.score) for hit in restricted.search(query, mode="dense", top_k=9)] == by_meaning
        past = {"as_of": "2100-01-01"}
        assert set(hits(restricted, query, **past)) == set(hits(memory, query, **at, **past))
    assert hits(restricted, "tofu", user_id="bob") == []
    assert restricted.get_all(limit=1000) == memory.get_all(**at, limit=1000)
    assert len(restricted.get_all(limit=1000)) > 30
    for item in memory.get_all(**at, limit=1000):
        assert restricted.history(item.id) == memory.history(item.id)
        assert restricted.get(item.id) == item
    assert len(restricted.history("m2")) == 2
    for item in memory.get_all(user_id="bob", limit=1000):
        with pytest.raises(UnknownItem):
            restricted.get(item.id)
        assert restricted.store.history(Scope(), item.id) == []
    assert restricted.snapshot() == memory.snapshot()
    for snapshot in (before, memory.snapshot()):
        past, whole = restricted.bank(at=snapshot), memory.bank(at=snapshot, **at)
        assert {(hit.id, hit.text) for hit in past.search("Ann tofu", 100)} == {
            (hit.id, hit.text) for hit in whole.search("Ann tofu", 100)
        }
    now = memory.snapshot()
    assert restricted.diff(before, now) == memory.store.diff(Scope(user="ann"), before, now)
    assert len(restricted.diff(before, now)) == 2
    assert restricted.episodes() == memory.episodes(**at)
    assert statistics(restricted.store).current == len(memory.get_all(**at, limit=1000))
    restricted.close()
    memory.close()


def test_words_count_as_in_a_memory_without_others(served: Served, tmp_path: Any) -> None:
    texts = [f"Ann likes {'tofu ' * (n % 3)}and rice number {n % 7} at {n}" for n in range(150)]
    memory = Memory(served.at("keeper"), encoder=None)
    alone = Memory(tmp_path / "alone.mem", encoder=None)
    for start in range(0, 150, 10):
        memory.add_many(texts[start : start + 10], user_id="ann")
        alone.add_many(texts[start : start + 10], user_id="ann")
        memory.add_many([f"tofu rice {CANARY} {n} {start}" for n in range(20)], user_id="bob")
    grant(served.at("keeper"), served.roles["ann"], user_id="ann")
    restricted = Memory(served.at("ann"), encoder=None)
    for query in ("tofu", "rice 7", "number 3 tofu", f"{CANARY} tofu", "likes and at", CANARY):
        found = [(hit.text, hit.score) for hit in restricted.search(query, top_k=40)]
        assert found == [(hit.text, hit.score) for hit in alone.search(query, top_k=40)], query
    assert restricted.search("tofu rice") != []
    # With words of everybody the scores are others.
    assert [hit.score for hit in memory.search("tofu", user_id="ann")] != [hit.score for hit in alone.search("tofu")]
    for of in (memory, alone, restricted):
        of.close()


def test_an_open_memory_follows_what_the_owner_writes(served: Served) -> None:
    memory = filled(served)
    grant(served.at("keeper"), served.roles["ann"], user_id="ann")
    restricted = Memory(served.at("ann"), encoder=WordEncoder())

    def found(query: str) -> list[str]:
        return [hit.text for hit in restricted.search(query, top_k=3)]

    assert "Ann drinks juice" not in found("Ann drinks juice")
    before = memory.snapshot()
    juice = memory.add("Ann drinks juice", user_id="ann")
    assert found("Ann drinks juice")[0] == "Ann drinks juice"
    for n in range(80):  # the full-text index goes on meanwhile
        memory.add(f"{CANARY} drinks {n}", user_id="bob")
    memory.update(juice.id, "Ann drinks water")
    assert found("Ann drinks water")[0] == "Ann drinks water"
    assert not any(CANARY in text for text in found(f"{CANARY} drinks 3"))
    # An entry of nobody's scope, which changes items of both.
    memory.rollback(since=before)
    assert "Ann drinks water" not in found("Ann drinks water")
    assert [each.kind for each in restricted.store.history(Scope(), juice.id)] in ([], ["ADD", "UPDATE", "ROLLBACK"])
    tofu = memory.get_all(user_id="ann", limit=1)[0]
    other = memory.get_all(user_id="bob", limit=1)[0]
    middle = memory.snapshot()
    memory.update(tofu.id, "Ann likes seitan")
    memory.update(other.id, f"{CANARY} likes seitan")
    memory.rollback(since=middle)
    mine, whole = restricted.history(tofu.id), memory.history(tofu.id)
    assert [(each.seq, each.kind, each.at, each.after) for each in mine] == [
        (each.seq, each.kind, each.at, each.after) for each in whole
    ]
    # Of what was done to all at once it is told no more.
    assert (whole[-1].kind, whole[-1].source, mine[-1].source) == ("ROLLBACK", f"since {middle}", "")
    assert mine[:-1] == whole[:-1]
    memory.forget(tofu.id, purge_history=True)
    assert tofu.text not in found(tofu.text)
    memory.close()
    restricted.close()


def test_a_restricted_role_writes_nothing_and_what_needs_all_is_refused_by_name(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    memory = filled(served)
    grant(served.at("keeper"), served.roles["ann"], user_id="ann")
    head = memory.store.head()
    restricted = Memory(served.at("ann"), encoder=WordEncoder())
    assert restricted.read_only
    assert "row-level security" in caplog.text
    for write in (
        lambda: restricted.add("more", user_id="ann"),
        lambda: restricted.update("m1", "other"),
        lambda: restricted.delete("m1"),
        lambda: restricted.rollback(since="s1"),
        lambda: restricted.forget("m1", purge_history=True),
        lambda: restricted.episode("a task", user_id="ann").search("x"),
        lambda: compact(restricted.store),
        lambda: list(reembed(restricted.store, WordEncoder(32))),
    ):
        with pytest.raises(ReadOnly, match="row-level security"):
            write()
    for whole in (
        lambda: check(restricted.store),
        lambda: list(exported(restricted.store)),
        lambda: rights(served.at("ann")),
    ):
        with pytest.raises(ReadOnly, match="as the owner"):
            whole()
    for of in (
        lambda: grant(served.at("ann"), served.roles["ann"], user_id="bob"),
        lambda: revoke(served.at("ann"), served.roles["ann"]),
    ):
        with pytest.raises(ReadOnly, match="row-level security"):
            of()
    assert memory.store.head() == head
    assert check(memory.store) == []
    memory.close()
    restricted.close()


def test_a_revoked_right_ends_with_the_next_statement(served: Served) -> None:
    import psycopg

    memory = filled(served)
    for user in ("ann", "bob"):
        grant(served.at("keeper"), served.roles["ann"], user_id=user)
    restricted = Memory(served.at("ann"), encoder=WordEncoder())
    both = len(restricted.get_all(limit=1000))
    assert any(CANARY in hit.text for hit in restricted.search(f"{CANARY} likes tofu"))
    with served.connect("ann") as connection:
        assert connection.execute(f"SELECT count(*) FROM items WHERE text LIKE '{CANARY}%'").fetchone()[0] > 30
        revoke(served.at("keeper"), served.roles["ann"], user_id="bob")
        assert connection.execute(f"SELECT count(*) FROM items WHERE text LIKE '{CANARY}%'").fetchone()[0] == 0
        assert not any(CANARY in hit.text for hit in restricted.search(f"{CANARY} likes tofu"))
        assert statistics(restricted.store).current < both
        assert [each.scope.user for each in rights(served.at("keeper"))] == ["ann"]
        revoke(served.at("keeper"), served.roles["ann"])
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(f"SELECT count(*) FROM {served.schema}.items")
    with pytest.raises(ReadOnly, match="taken back"):
        restricted.search("tofu")
    restricted.close()
    with pytest.raises(ReadOnly, match="GRANT"):
        Memory(served.at("ann"), encoder=None)
    with pytest.raises(MemoryProblem, match="no such right"):
        revoke(served.at("keeper"), served.roles["ann"])
    assert rights(served.at("keeper")) == []
    memory.add("Ann is still here", user_id="ann")
    assert check(memory.store) == []
    memory.close()


@pytest.mark.parametrize(
    ("make", "why"),
    [
        ("ALTER ROLE {role} SUPERUSER", "is a superuser"),
        ("ALTER ROLE {role} BYPASSRLS", "has BYPASSRLS"),
        ("ALTER ROLE {role} REPLICATION", "has REPLICATION"),
        ("ALTER ROLE {role} CREATEROLE", "has CREATEROLE"),
        ("GRANT {keeper} TO {role}", "which owns tables"),
        ("GRANT pg_read_server_files TO {role}", "which reads more than"),
        ("GRANT pg_monitor TO {role}", "which reads more than"),
        ("GRANT CREATE ON SCHEMA {schema} TO {role}", "may make functions"),
        ("ALTER ROLE {other} BYPASSRLS; GRANT {other} TO {role}", "which has BYPASSRLS"),
    ],
)
def test_a_role_that_policies_do_not_hold_is_refused_and_found_later(served: Served, make: str, why: str) -> None:
    Memory(served.at("keeper"), encoder=None).close()
    role = served.roles["ann"]
    grant(served.at("keeper"), role, user_id="ann")
    assert [each.unsound for each in rights(served.at("keeper"))] == [""]
    served.run(
        "admin",
        make.format(role=role, keeper=served.roles["keeper"], schema=served.schema, other=served.roles["other"]),
    )
    assert why in rights(served.at("keeper"))[0].unsound
    with pytest.raises(MemoryProblem, match=f"{why}.* would not hold it"):
        grant(served.at("keeper"), role, user_id="ann", agent_id="helper")
    assert len(rights(served.at("keeper"))) == 1


def test_what_cannot_be_granted_is_named(served: Served, tmp_path: Any) -> None:
    Memory(served.at("keeper"), encoder=None).close()
    with pytest.raises(MemoryProblem, match="CREATE ROLE"):
        grant(served.at("keeper"), "nobody_of_this_name", user_id="ann")
    with pytest.raises(MemoryProblem, match="--user"):
        grant(served.at("keeper"), served.roles["ann"], user_id="")
    with pytest.raises(MemoryProblem, match="is a file"):
        grant(str(tmp_path / "a.mem"), served.roles["ann"], user_id="ann")
    served.run("keeper", f"GRANT SELECT ON items TO {served.roles['other']}")
    with pytest.raises(MemoryProblem, match=f"{served.roles['other']} has rights"):
        grant(served.at("keeper"), served.roles["ann"], user_id="ann")
    served.run("keeper", f"REVOKE SELECT ON items FROM {served.roles['other']}")
    assert served.run(
        "admin", "SELECT count(*) FROM pg_class WHERE relrowsecurity AND relnamespace = current_schema()::regnamespace"
    ) == [(0,)]
    grant(served.at("keeper"), served.roles["ann"], user_id="ann")
    # Whoever comes later by GRANT alone sees nothing, and is told so.
    served.run(
        "keeper",
        f"GRANT USAGE ON SCHEMA {served.schema} TO {served.roles['other']}",
        f"GRANT ALL ON ALL TABLES IN SCHEMA {served.schema} TO {served.roles['other']}",
    )
    with pytest.raises(ReadOnly, match="keepworth memory grant"):
        Memory(served.at("other"), encoder=None)


def test_a_member_of_the_owner_sees_and_writes_all(served: Served) -> None:
    memory = filled(served)
    grant(served.at("keeper"), served.roles["ann"], user_id="ann")
    served.run("admin", f"GRANT {served.roles['keeper']} TO {served.roles['other']}")
    server = Memory(served.at("other"), encoder=WordEncoder())
    assert len(server) == len(memory)
    server.add("Ann likes figs", user_id="ann")
    # New tables of vectors are guarded from the start, whoever makes them.
    for _ in reembed(server.store, WordEncoder(32)):
        pass
    server.close()
    memory.close()
    memory = Memory(served.at("keeper"), encoder=WordEncoder(32))
    assert check(memory.store) == []
    restricted = Memory(served.at("ann"), encoder=WordEncoder(32))
    assert restricted.search("Ann likes figs", mode="dense")[0].text == "Ann likes figs"
    assert not any(CANARY in hit.text for hit in restricted.search(f"{CANARY} likes tofu", mode="dense"))
    unguarded = (
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace AND NOT "
        "relrowsecurity"
    )
    assert served.run("admin", unguarded) == []
    grant(served.at("keeper"), served.roles["bob"], user_id="bob")
    restricted.close()
    memory.close()


def test_a_role_that_was_dropped_leaves_no_right(served: Served) -> None:
    Memory(served.at("keeper"), encoder=None).close()
    grant(served.at("keeper"), served.roles["bob"], user_id="bob")
    served.run("admin", f"DROP OWNED BY {served.roles['bob']}", f"DROP ROLE {served.roles['bob']}")
    assert rights(served.at("keeper")) == []
    grant(served.at("keeper"), served.roles["ann"], user_id="ann")
    served.run("admin", f"CREATE ROLE {served.roles['bob']} LOGIN")
    with pytest.raises(ReadOnly):
        Memory(served.at("bob"), encoder=None)


def test_rights_narrow_to_an_agent_and_a_session(served: Served) -> None:
    memory = Memory(served.at("keeper"), encoder=None)
    memory.add("of Ann alone", user_id="ann")
    memory.add("of Ann and the helper", user_id="ann", agent_id="helper")
    memory.add("of Ann, the helper and a talk", user_id="ann", agent_id="helper", session_id="talk")
    memory.add("of Bob and the helper", user_id="bob", agent_id="helper")
    grant(served.at("keeper"), served.roles["ann"], user_id="ann", agent_id="helper")
    grant(served.at("keeper"), served.roles["bob"], user_id="bob", agent_id="helper", session_id="talk")
    with Memory(served.at("ann"), encoder=None) as restricted:
        assert [item.text for item in restricted.get_all()] == [
            "of Ann and the helper",
            "of Ann, the helper and a talk",
        ]
        memory.add("of Ann, the helper and a walk", user_id="ann", agent_id="helper", session_id="walk")
        assert len(restricted.get_all()) == 3
        assert [hit.text for hit in restricted.search("walk")] == ["of Ann, the helper and a walk"]
    with Memory(served.at("bob"), encoder=None) as restricted:
        assert restricted.get_all() == []  # there is none, and a right to what comes
        memory.add("of Bob, the helper and a talk", user_id="bob", agent_id="helper", session_id="talk")
        assert [hit.text for hit in restricted.search("talk")] == ["of Bob, the helper and a talk"]
    memory.close()


def test_who_grants_nothing_pays_nothing(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Statements that go to the server, without rights and for the owner with them."""
    sent: list[str] = []
    real = database.ServerConnection._sent

    def counted(self: Any, statements: str, *rest: Any) -> Any:
        sent.append(statements)
        return real(self, statements, *rest)

    Memory(served.at("keeper"), encoder=WordEncoder()).close()
    monkeypatch.setattr(database.ServerConnection, "_sent", counted)

    def used() -> list[str]:
        sent.clear()
        with Memory(served.at("keeper"), encoder=WordEncoder(), policy=None, log="off") as memory:
            memory.add(f"a text {uuid.uuid4()}", user_id="ann")
            memory.search("text", user_id="ann")
        return list(sent)

    used()
    plain = used()
    assert not any("role" in each and "pg_has_role" not in each for each in plain)
    assert sum("pg_has_role" in each for each in plain) == 1
    grant(served.at("keeper"), served.roles["ann"], user_id="ann")
    assert used() == plain


def test_the_commands(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    from keepworth.cli.main import main

    filled(served).close()
    role = served.roles["ann"]

    def call(*words: str, code: int = 0, by: str = "keeper") -> str:
        assert main(["memory", *words, "--file", served.at(by)]) == code, capsys.readouterr()
        told = capsys.readouterr()
        return told.out + told.err

    assert "No role has rights" in call("rights")
    assert "--user" in call("grant", role, code=2)
    given = call("grant", role, "--user", "ann")
    assert "writes nothing" in given
    assert f"revoke {role} --user ann" in " ".join(given.split())
    assert call("rights").split() == [role, "user", "ann"]
    assert '"user": "ann"' in call("rights", "--json").replace('":"', '": "')
    assert "Porto" not in call("search", "Faro", "--encoder", "none", by="ann")
    assert "row-level security" in call("add", "x", "--encoder", "none", by="ann", code=2)
    assert "as the owner" in call("check", by="ann", code=2)
    assert CANARY not in call("list", by="ann")
    assert CANARY not in call("export", "-", "--to", "markdown", by="ann")
    served.run("admin", f"ALTER ROLE {role} BYPASSRLS")
    assert "BYPASSRLS" in call("rights", code=2)
    assert "no longer reads" in call("revoke", role)
    assert "No role has rights" in call("rights")


def test_vectors_on_the_server_and_rights_together(served: Served) -> None:
    """The table of `index="hnsw"` and its triggers, made before and after the first right."""
    served.run("admin", "CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA public")
    for earlier in (True, False):
        memory = filled(served)
        if earlier:
            near = Memory(served.at("keeper"), encoder=WordEncoder(), index="hnsw")
            near.search("tofu", mode="dense")
            served.run("admin", "ANALYZE")
        grant(served.at("keeper"), served.roles["ann"], user_id="ann")
        if not earlier:
            near = Memory(served.at("keeper"), encoder=WordEncoder(), index="hnsw")
        with pytest.raises(ReadOnly, match=r"index='hnsw'.*'exact'.*as the owner"):
            Memory(served.at("ann"), encoder=WordEncoder(), index="hnsw")
        added = near.add("Ann likes figs", user_id="ann")
        near.update(near.add(f"{CANARY} likes figs", user_id="bob").id, f"{CANARY} likes dates")
        assert near.search("Ann likes figs", mode="dense", top_k=1)[0].id == added.id
        for _ in lay_in(near.store):
            pass
        assert near.search("Ann likes figs", mode="dense", top_k=1)[0].id == added.id
        near.delete(added.id)
        assert near.search("Ann likes figs", mode="dense", top_k=1)[0].id != added.id
        assert check(near.store) == []
        served.run("keeper", "SELECT 1 / count(*) FROM vectors_1_nearest")
        for table in ("vectors_1_nearest", "vectors_1_waiting"):
            assert said(served.connect("ann"), f"SELECT * FROM {table}").startswith(("[]", "ERROR"))
        near.close()
        memory.close()
        if earlier:
            served.run(
                "admin",
                f"DROP SCHEMA {served.schema} CASCADE",
                f"CREATE SCHEMA {served.schema} AUTHORIZATION {served.roles['keeper']}",
            )


def test_what_triggers_may_do_is_nobody_elses(served: Served) -> None:
    """They run with more rights than those of who writes. Whoever could set one on a table of their own would use them."""
    served.run("admin", "CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA public")
    memory = filled(served)
    grant(served.at("keeper"), served.roles["ann"], user_id="ann")
    near = Memory(served.at("keeper"), encoder=WordEncoder(), index="hnsw")
    for _ in lay_in(near.store):
        pass
    definers = [
        name
        for (name,) in served.run(
            "admin",
            "SELECT oid::regprocedure::text FROM pg_proc WHERE prosecdef AND pronamespace = current_schema()::regnamespace",
        )
    ]
    assert len(definers) == 2
    before = served.run("keeper", "SELECT count(*) FROM vectors_1_nearest")
    assert before > [(60,)]
    with served.connect("ann") as connection:
        connection.execute(
            "CREATE TEMP TABLE vectors_1_nearest(n bigint); CREATE TEMP TABLE vectors_1_waiting(n bigint)"
        )
        connection.execute("CREATE TEMP TABLE told(text text); GRANT ALL ON told TO PUBLIC")
        connection.execute(
            "CREATE FUNCTION pg_temp.taken() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            f"INSERT INTO told SELECT text FROM {served.schema}.items; RETURN NEW; END $$; "
            "CREATE TRIGGER taken BEFORE INSERT ON vectors_1_waiting FOR EACH ROW EXECUTE FUNCTION pg_temp.taken(); "
            "GRANT ALL ON vectors_1_waiting, vectors_1_nearest TO PUBLIC"
        )
        for function in definers:
            table = f"own_{definers.index(function)}"
            connection.execute(f"CREATE TEMP TABLE {table}(LIKE {served.schema}.items)")
            found = said(
                connection,
                f"CREATE TRIGGER mine AFTER INSERT OR UPDATE OR DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION {function}",
            )
            said(connection, f"INSERT INTO {table} SELECT * FROM items LIMIT 1")
            said(connection, f"UPDATE {table} SET n = generate_series FROM generate_series(1, 1000)")
            said(connection, f"DELETE FROM {table}")
            assert CANARY not in said(connection, "SELECT text FROM told")
            assert "permission denied for function" in found
    assert served.run("keeper", "SELECT count(*) FROM vectors_1_nearest") == before
    # Nor does whoever may write items reach more through a table of a name that a trigger uses.
    settings = served.run(
        "admin", "SELECT proconfig::text FROM pg_proc WHERE prosecdef AND pronamespace = current_schema()::regnamespace"
    )
    assert all(said.rstrip('"}').endswith("pg_temp") for (said,) in settings)
    near.close()
    memory.close()


def test_the_lines_of_the_page(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    """Those of docs/memory.md, at this server's addresses."""
    from keepworth.cli.main import main

    filled(served).close()
    page = (Path(__file__).parents[2] / "docs" / "memory.md").read_text(encoding="utf-8")
    _, block = page.split("<!-- runs in: tests/memory/test_row_security.py -->\n```sh\n")
    shown, *lines = block.partition("```")[0].splitlines()
    (statement,) = shlex.split(shown)[2:]
    served.run("admin", statement.replace("ann_app", served.roles["ann"] + "_app"))
    served.roles["app"] = served.roles["ann"] + "_app"
    try:
        for line in lines:
            by = {"owner": "keeper", "ann_app": "app"}[line.partition("://")[2].partition("@")[0]]
            words = [each.replace("ann_app", served.roles["app"]) for each in shlex.split(line)[1:-1]]
            encoder = ["--encoder", "none"] if "search" in words else []
            assert main([*words, served.at(by), *encoder]) == 0, capsys.readouterr()
    finally:
        served.run("admin", f"DROP OWNED BY {served.roles['app']}", f"DROP ROLE {served.roles['app']}")
    told = capsys.readouterr().out
    assert "Ann likes tofu" in told
    assert CANARY not in told
