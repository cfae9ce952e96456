"""Row-level security: roles of Postgres that read what some scopes hold, whatever SQL they send, and nothing else.

What protects is in the server: policies that compare a row's scope with what the present role was granted, and no setting that a
session could change. Such a role reads; it writes nothing, as each write moves the head of the journal, the index and the counts
of everybody.

Tables are read as they are, but for three. Of `events` a role sees its own; `seen_events` puts the numbers of the others between
them, without what they say, so that it is known when there is something new. A chain of hashes would confirm a guess at what
others wrote, so each role has states under names of its own. `word_counts` counts the words of all: `seen_word_counts` counts
those of the role. `changes` follows from both.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from keepworth.memory.errors import MemoryProblem, ReadOnly
from keepworth.memory.item import PARTS, Scope

if TYPE_CHECKING:
    import psycopg

LEAST_SERVER = 150000
"""Views that read with the rights of who asks came with Postgres 15."""

_TABLES = """
CREATE TABLE restricted_roles(role REGROLE PRIMARY KEY, stamp BYTEA NOT NULL);
CREATE TABLE role_scopes(role REGROLE NOT NULL REFERENCES restricted_roles(role) ON DELETE CASCADE,
  tenant TEXT COLLATE "C" NOT NULL, "user" TEXT COLLATE "C" NOT NULL, agent TEXT COLLATE "C" NOT NULL,
  session TEXT COLLATE "C" NOT NULL, PRIMARY KEY(role, tenant, "user", agent, session))
"""
_ME = "(SELECT oid FROM pg_catalog.pg_roles WHERE rolname = current_user)"
# The first two read with the rights of the owner, and nothing of others is in their columns but numbers, kinds, and which entries
# a rollback took back. The others read with the rights of who asks.
_VIEWS = f"""
CREATE VIEW own_scopes WITH (security_barrier) AS
  SELECT s.id, s.tenant, s."user", s.agent, s.session FROM role_scopes r JOIN scopes s ON s.tenant = r.tenant
    AND s."user" = r."user" AND (r.agent = '' OR r.agent = s.agent) AND (r.session = '' OR r.session = s.session)
  WHERE r.role::oid = {_ME};
CREATE VIEW seen_entries AS
  SELECT e.seq, e.kind, e.applied,
    CASE WHEN e.kind IN ('ROLLBACK', 'PURGE') OR EXISTS (SELECT 1 FROM touches t JOIN items i ON i.n = t.n
      WHERE t.seq = e.seq AND i.scope = ANY (ARRAY(SELECT id FROM own_scopes))) THEN e.at ELSE '' END COLLATE "C" AS at,
    CASE e.kind WHEN 'ROLLBACK' THEN json_build_object('ranges', e.payload::json -> 'ranges', 'reason', '')::text END
      COLLATE "C" AS payload,
    sha256((SELECT stamp FROM restricted_roles WHERE role::oid = {_ME}) || e.chain) AS chain,
    e.scope = ANY (ARRAY(SELECT id FROM own_scopes)) AS own
  FROM events e;
CREATE VIEW seen_events WITH (security_invoker) AS
  SELECT e.seq, e.at, e.kind, e.scope, e.episode, e.source, e.payload, e.applied, e.reason, e.content, e.body,
    (SELECT s.chain FROM seen_entries s WHERE s.seq = e.seq) AS chain FROM events e
  UNION ALL SELECT s.seq, s.at, s.kind, 0::bigint, '' COLLATE "C", '' COLLATE "C", s.payload, s.applied, '' COLLATE "C",
    NULL::bigint, NULL::bytea, s.chain FROM seen_entries s WHERE NOT s.own;
CREATE VIEW seen_changes WITH (security_invoker) AS
  SELECT seq, n, changed, before FROM touches
  UNION ALL SELECT seq, seq, true, NULL::text COLLATE "C" FROM events WHERE applied = 2
  UNION ALL SELECT s.seq, s.seq, true, NULL::text COLLATE "C" FROM seen_entries s WHERE s.applied = 2 AND NOT s.own
    AND EXISTS (SELECT 1 FROM items i WHERE i.n = s.seq);
CREATE VIEW seen_word_counts WITH (security_invoker) AS
  SELECT term, count(*) AS doc FROM words WHERE term <> '' GROUP BY term
"""
VIEWS = ("own_scopes", "seen_entries", "seen_events", "seen_changes", "seen_word_counts")
# The newest entry of all, which a union of two views cannot take from an index.
_NEWEST = re.compile(r"\bFROM events(?= ORDER BY seq DESC LIMIT 1\b)|(?<=max\(seq\) )FROM events\b(?! WHERE)")
_INSTEAD = re.compile(r"\b(FROM|JOIN)(\s+)(events|changes|word_counts)\b")

_IN_SCOPE = "{} = ANY (ARRAY(SELECT id FROM own_scopes))"
_NAMED = """EXISTS (SELECT 1 FROM own_scopes s WHERE s.tenant = names.tenant AND names.name =
  CASE names.part WHEN 'tenant' THEN s.tenant WHEN 'user' THEN s."user" WHEN 'agent' THEN s.agent ELSE s.session END)"""
# An item that a rollback took away has no row; the entry that made it says whose it was.
_OF_ITEM = "EXISTS (SELECT 1 FROM items i WHERE i.n = {0}.n) OR EXISTS (SELECT 1 FROM events e WHERE e.seq = {0}.n)"
_POLICIES = {
    "facts_of_file": "name IN ('store', 'format')",
    "names": _NAMED,
    "scopes": _IN_SCOPE.format("id"),
    **dict.fromkeys(("items", "events", "episodes", "decisions", "tombstones"), _IN_SCOPE.format("scope")),
    **dict.fromkeys(("words", "past_words"), _IN_SCOPE.format("home")),
    **{table: _OF_ITEM.format(table) for table in ("touches", "former_vectors")},
    **dict.fromkeys(("indexed", "languages", "vector_sets"), "true"),
}
"""Which rows of a table a restricted role sees. Of tables that are not here: none."""
_VECTORS = re.compile(r"vectors_\d+")
_OPEN_COLUMNS = {"events": "seq, at, kind, scope, episode, source, payload, applied, reason, content, body"}
"""Of tables of which not every column may be read."""
_SAMPLED = (("events", "kind"), ("items", "status"))
"""Columns of text of which the server may keep samples to plan by: they hold a few words of ours."""
# The tables of `index="hnsw"` are read by nobody else, and a graph over a column would be built anew.
_SECRET = (
    "SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), EXISTS(SELECT 1 FROM pg_stats s WHERE s.schemaname = "
    "current_schema() AND s.tablename = c.relname AND s.attname = a.attname) FROM pg_class c JOIN pg_attribute a ON "
    "a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped WHERE c.relnamespace = current_schema()::regnamespace AND "
    "c.relkind IN ('r', 'p') AND c.relname !~ '^vectors_\\d+_' AND "
    "(a.atttypid NOT IN ('bigint'::regtype, 'boolean'::regtype, 'double precision'::regtype) OR "
    "a.attname IN ('content', 'hash')) ORDER BY 1, a.attnum"
)
_TOO_MUCH = (
    "pg_read_server_files",
    "pg_write_server_files",
    "pg_execute_server_program",
    "pg_read_all_data",  # hidden columns, too
    "pg_write_all_data",
    "pg_read_all_stats",  # the text of what others ask
)


@dataclass(frozen=True, slots=True)
class RoleRight:
    """role: of Postgres; scope: what it reads, and what is inside that; unsound: why the role reads more than that by now."""

    role: str
    scope: Scope
    unsound: str = ""


def seen(statement: str) -> str:
    """A statement that reads, as a restricted role sends it."""
    return _INSTEAD.sub(r"\1\2seen_\3", _NEWEST.sub("FROM seen_entries", statement))


def grant(raw: psycopg.Connection[Any], role: str, scope: Scope) -> None:
    """Let a role read what `scope` holds. With the first one of a memory row-level security begins there. The caller holds a
    write transaction. Raises MemoryProblem, ReadOnly."""
    if not scope.user:
        raise MemoryProblem("a right is to what a person has: name one with user_id (--user)")
    owner = _as_owner(raw)
    _refuse_unsound(raw, role)
    fresh = not _there(raw)
    _refuse_others(raw, owner)
    if fresh:
        _forget_samples(raw)
        raw.execute(_TABLES)
        raw.execute(_VIEWS)
    # Another stamp gives every state another name, so that what an open memory has read is read anew.
    put = (
        "INSERT INTO restricted_roles VALUES (%s::regrole, %s) ON CONFLICT (role) DO UPDATE SET stamp = excluded.stamp"
    )
    raw.execute(put, (_identifier(role), os.urandom(32)))
    right = "INSERT INTO role_scopes VALUES (%s::regrole, %s, %s, %s, %s) ON CONFLICT DO NOTHING"
    raw.execute(right, (_identifier(role), *scope.parts()))
    guard(raw)


def revoke(raw: psycopg.Connection[Any], role: str, scope: Scope | None) -> None:
    """Take back the right to `scope`; None: all that the role has. The caller holds a write transaction. Raises MemoryProblem."""
    _as_owner(raw)
    listed = [each.scope for each in rights(raw) if each.role == role]
    if not listed or (scope is not None and scope not in listed):
        has = ", ".join(map(_shown, listed)) or "none"
        raise MemoryProblem(
            f"the role {role!r:.80} has no such right in this memory (it has {has}): take one that `rights` lists"
        )
    if scope is None or listed == [scope]:
        name, schema = _identifier(role), _schema(raw)
        raw.execute("DELETE FROM restricted_roles WHERE role = %s::regrole", (name,))
        guard(raw)
        raw.execute(f"REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM {name}")
        raw.execute(f"REVOKE ALL ON SCHEMA {schema} FROM {name}")
        return
    gone = 'DELETE FROM role_scopes WHERE role = %s::regrole AND tenant = %s AND "user" = %s AND agent = %s AND session = %s'
    raw.execute(gone, (_identifier(role), *scope.parts()))
    raw.execute("UPDATE restricted_roles SET stamp = %s WHERE role = %s::regrole", (os.urandom(32), _identifier(role)))


def rights(raw: psycopg.Connection[Any]) -> list[RoleRight]:
    """Those of all roles, by name. [] where row-level security is off."""
    if not _there(raw):
        return []
    query = (
        'SELECT a.rolname, r.tenant, r."user", r.agent, r.session FROM role_scopes r JOIN pg_roles a ON a.oid = r.role::oid '
        "ORDER BY 1, 2, 3, 4, 5"
    )
    found = raw.execute(query).fetchall()
    unsound = {role: _unsound(raw, role) for role, *_ in found}
    return [RoleRight(role, Scope(*parts), unsound[role]) for role, *parts in found]


def guard(raw: psycopg.Connection[Any], only: str = "") -> None:
    """Put the policies on every table of the memory, or on `only` one that is new. Nothing where row-level security is off."""
    if not _there(raw):
        return
    # A role that was dropped has left its number behind, which no other one gets.
    listed = "SELECT quote_ident(rolname) FROM pg_roles JOIN restricted_roles ON oid = role::oid ORDER BY 1"
    roles = [name for (name,) in raw.execute(listed)]
    listed = (
        "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p') AND "
        "(relname = %s OR %s = '') ORDER BY 1"
    )
    ((owner,),) = raw.execute("SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = 'items'::regclass").fetchall()
    schema, statements = _schema(raw), list[str]()
    secret = [row for row in raw.execute(_SECRET).fetchall() if row[:2] not in _SAMPLED]
    for (table,) in raw.execute(listed, (only, only)).fetchall():
        if only:
            statements.append(f"ALTER TABLE {table} OWNER TO {_identifier(owner)}")
        statements += [
            f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY",
            *(f'ALTER TABLE {table} ALTER "{column}" SET STATISTICS 0' for of, column, *_ in secret if of == table),
            f"DROP POLICY IF EXISTS keepworth_seen ON {table}",
        ]
        rows = _POLICIES.get(table)
        if _VECTORS.fullmatch(table):
            rows = f"EXISTS (SELECT 1 FROM items i WHERE i.n = {table}.n)"
        if rows is None or not roles:
            continue
        columns = f"({_OPEN_COLUMNS[table]})" if table in _OPEN_COLUMNS else ""
        statements += [
            f"CREATE POLICY keepworth_seen ON {table} FOR SELECT TO {', '.join(roles)} USING ({rows})",
            f"GRANT SELECT {columns} ON {table} TO {', '.join(roles)}",
        ]
    if roles and not only:
        statements += [
            f"GRANT USAGE ON SCHEMA {schema} TO {', '.join(roles)}",
            f"GRANT SELECT ON {', '.join(VIEWS)} TO {', '.join(roles)}",
        ]
    raw.execute(";\n".join(statements).encode())


def _forget_samples(raw: psycopg.Connection[Any]) -> None:
    """Of values in the tables the server keeps samples, and what EXPLAIN expects of a query gives them away one by one. A column
    whose type is set loses them, also where it is set to what it was."""
    ((changes,),) = raw.execute("SELECT pg_get_viewdef('changes'::regclass)").fetchall()
    # No column's type is set while a trigger's condition names it.
    conditional = (
        "SELECT quote_ident(tgname), tgrelid::regclass::text, pg_get_triggerdef(t.oid) FROM pg_trigger t JOIN pg_class c ON "
        "c.oid = tgrelid WHERE relnamespace = current_schema()::regnamespace AND tgqual IS NOT NULL AND NOT tgisinternal"
    )
    triggers = raw.execute(conditional).fetchall()
    statements = ["DROP VIEW changes", *(f"DROP TRIGGER {name} ON {table}" for name, table, _ in triggers)]
    for table, column, kind, sampled in raw.execute(_SECRET).fetchall():
        if sampled and (table, column) not in _SAMPLED:
            collation = ' COLLATE "C"' if kind == "text" else ""
            statements.append(f'ALTER TABLE {table} ALTER "{column}" TYPE {kind}{collation}')
    made = (definition for *_, definition in triggers)
    raw.execute(";\n".join([*statements, *made, f"CREATE VIEW changes AS {changes}"]).encode())


def _there(raw: psycopg.Connection[Any]) -> bool:
    query = "SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'restricted_roles'"
    return raw.execute(query).fetchone() is not None


def _as_owner(raw: psycopg.Connection[Any]) -> str:
    """Go on as the owner of the tables, to the end of the transaction, so that views read with its rights and not with those of a
    superuser. Its name, as SQL says it."""
    if raw.info.server_version < LEAST_SERVER:
        raise MemoryProblem("row-level security needs Postgres 15 or later: give each tenant a schema of its own here")
    owners = (
        "SELECT DISTINCT pg_get_userbyid(relowner), pg_has_role(relowner, 'MEMBER') FROM pg_class "
        "WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p', 'v') ORDER BY 1"
    )
    found = raw.execute(owners).fetchall()
    if len(found) != 1:
        names = ", ".join(name for name, _ in found)
        raise MemoryProblem(
            f"the tables of this memory belong to several roles ({names}), and one has to rule them: ALTER TABLE ... OWNER TO one"
        )
    ((owner, member),) = found
    if not member:
        raise ReadOnly(f"rights are given and taken by the owner of the memory, {owner!r}: connect as that role")
    name = _identifier(owner)
    raw.execute(f"SET LOCAL ROLE {name}")
    return name


def _refuse_unsound(raw: psycopg.Connection[Any], role: str) -> None:
    if raw.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,)).fetchone() is None:
        raise MemoryProblem(
            f"there is no role {role!r:.80} on this server: make it with CREATE ROLE ... LOGIN, as an administrator"
        )
    why = _unsound(raw, role)
    if why:
        raise MemoryProblem(
            f"the role {role!r:.80} {why}, so row-level security would not hold it: give another role, or take that away"
        )


def _unsound(raw: psycopg.Connection[Any], role: str) -> str:
    """Why policies do not hold a role; "" where they do. What it may become counts, too."""
    query = (
        "SELECT r.rolname, r.rolsuper, r.rolbypassrls, r.rolreplication, r.rolcreaterole, r.rolname = ANY(%s), EXISTS(SELECT 1 "
        "FROM pg_class WHERE relnamespace = s.oid AND relowner = r.oid) OR s.nspowner = r.oid FROM pg_roles r, pg_namespace s, "
        "pg_roles given WHERE given.rolname = %s AND s.oid = current_schema()::regnamespace AND "
        "(r.oid = given.oid OR (pg_has_role(given.oid, r.oid, 'MEMBER') AND NOT given.rolsuper)) ORDER BY r.oid <> given.oid, 1"
    )
    reasons = (
        "is a superuser",
        "has BYPASSRLS",
        "has REPLICATION, which reads everything",
        "has CREATEROLE, which may make it a member of others",
        "reads more than tables by their rights",
        "owns tables of this memory or its schema",
    )
    for name, *found in raw.execute(query, (list(_TOO_MUCH), role)).fetchall():
        for reason, true in zip(reasons, found, strict=True):
            if true:
                return reason if name == role else f"is a member of {name!r}, which {reason}"
    may = "SELECT has_schema_privilege(%s::name, current_schema()::regnamespace::oid, 'CREATE')"
    ((creates,),) = raw.execute(may, (role,)).fetchall()
    if creates:
        return "may make functions in the memory's schema (CREATE)"
    calls = (
        "SELECT p.oid::regprocedure FROM pg_proc p WHERE pronamespace = current_schema()::regnamespace AND prosecdef AND "
        "has_function_privilege(%s::name, p.oid, 'EXECUTE') ORDER BY 1 LIMIT 1"
    )
    found = raw.execute(calls, (role,)).fetchone()
    return f"may run {found[0]} with the rights of its owner (REVOKE ALL ON FUNCTION it FROM PUBLIC)" if found else ""


def _refuse_others(raw: psycopg.Connection[Any], owner: str) -> None:
    """Raise where somebody has rights to the tables by other means: with policies they would see nothing, and who may TRUNCATE
    is held by none."""
    known = "a.grantee NOT IN (SELECT role::oid FROM restricted_roles)" if _there(raw) else "true"
    query = (
        "SELECT DISTINCT coalesce(g.rolname, 'PUBLIC') FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a LEFT JOIN "
        "pg_roles g ON g.oid = a.grantee WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p', 'v') "
        f"AND a.grantee <> c.relowner AND {known} "
        "AND NOT coalesce(pg_has_role(g.oid, c.relowner, 'USAGE'), false) ORDER BY 1"
    )
    others = [name for (name,) in raw.execute(query).fetchall()]
    if others:
        raise MemoryProblem(
            f"{', '.join(others)} {'have' if len(others) > 1 else 'has'} rights to the tables of this memory by GRANT, and would "
            f"see nothing of it: REVOKE ALL ON ALL TABLES IN SCHEMA {_schema(raw)}, or GRANT {owner} to roles that see everything"
        )


def _schema(raw: psycopg.Connection[Any]) -> str:
    ((name,),) = raw.execute("SELECT quote_ident(current_schema())").fetchall()
    return str(name)


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _shown(scope: Scope) -> str:
    return " ".join(f"{name}={part}" for name, part in zip(PARTS, scope.parts(), strict=True) if part)
