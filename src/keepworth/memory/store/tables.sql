-- The tables of a memory file, which schema.py describes. Names in braces are values of that module.
-- The creation of an item, which is the most frequent write, has no row in `touches`, and its content number is in one index only:
-- each B-tree that it need not touch makes it cheaper.
-- The full-text table, which is made elsewhere, keeps positions (detail=full): without them a table that does not hold the text
-- cannot rank.
CREATE TABLE facts_of_file(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE names(id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, part TEXT NOT NULL, name TEXT NOT NULL,
  UNIQUE(tenant, part, name));
CREATE TABLE scopes(id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, "user" TEXT NOT NULL, agent TEXT NOT NULL,
  session TEXT NOT NULL, tokens TEXT NOT NULL, count INTEGER NOT NULL DEFAULT 0, words INTEGER NOT NULL DEFAULT 0,
  total BLOB NOT NULL, UNIQUE(tenant, "user", agent, session));
CREATE TABLE items(n INTEGER PRIMARY KEY, scope INTEGER NOT NULL REFERENCES scopes(id), kind TEXT NOT NULL,
  text TEXT NOT NULL, key TEXT NOT NULL, event_time TEXT NOT NULL, written_at TEXT NOT NULL, valid_from TEXT NOT NULL,
  valid_to TEXT NOT NULL, ended_at TEXT NOT NULL, expires_at TEXT NOT NULL, superseded_by TEXT NOT NULL,
  links TEXT NOT NULL, source TEXT NOT NULL, source_session TEXT NOT NULL, turn INTEGER NOT NULL, speaker TEXT NOT NULL,
  date TEXT NOT NULL, trust REAL NOT NULL, status TEXT NOT NULL, deleted INTEGER NOT NULL, revision INTEGER NOT NULL,
  shown INTEGER NOT NULL, credited INTEGER NOT NULL, total REAL NOT NULL, total_squared REAL NOT NULL,
  propensity_total REAL NOT NULL, metadata TEXT NOT NULL, content INTEGER);
CREATE INDEX items_by_content ON items(content) WHERE content IS NOT NULL;
CREATE INDEX items_by_scope ON items(scope);
CREATE INDEX items_closed ON items(n) WHERE {CLOSED};
CREATE TABLE events(seq INTEGER PRIMARY KEY, at TEXT NOT NULL, kind TEXT NOT NULL, scope INTEGER NOT NULL,
  episode TEXT NOT NULL, source TEXT NOT NULL, payload TEXT, applied INTEGER NOT NULL, reason TEXT NOT NULL,
  content INTEGER, body BLOB, chain BLOB);
CREATE INDEX events_by_content ON events(content) WHERE content IS NOT NULL AND applied <> {CREATED};
CREATE INDEX events_by_episode ON events(episode) WHERE episode <> '';
CREATE INDEX events_by_kind ON events(kind) WHERE {OF_KIND};
CREATE TABLE touches(seq INTEGER NOT NULL, n INTEGER NOT NULL, changed INTEGER NOT NULL, before TEXT,
  PRIMARY KEY(seq, n)) WITHOUT ROWID;
CREATE INDEX changes_by_item ON touches(n, seq);
CREATE VIEW changes AS SELECT seq, n, changed, before FROM touches
  UNION ALL SELECT seq, seq, 1, NULL FROM events WHERE applied = {CREATED};
CREATE TABLE former_contents(content INTEGER NOT NULL, n INTEGER NOT NULL, PRIMARY KEY(content, n)) WITHOUT ROWID;
CREATE TABLE indexed(through INTEGER NOT NULL);
INSERT INTO indexed VALUES(0);
CREATE TABLE tombstones(n INTEGER PRIMARY KEY, scope INTEGER NOT NULL, seq INTEGER NOT NULL);
CREATE TABLE vector_sets(id INTEGER PRIMARY KEY, model TEXT NOT NULL, dimension INTEGER NOT NULL,
  normalised INTEGER NOT NULL, state TEXT NOT NULL, made TEXT NOT NULL DEFAULT '');
CREATE TABLE former_vectors(set_id INTEGER NOT NULL, n INTEGER NOT NULL, hash INTEGER NOT NULL, vector BLOB NOT NULL,
  PRIMARY KEY(set_id, n, hash));
CREATE TABLE episodes(id TEXT PRIMARY KEY, scope INTEGER NOT NULL, task TEXT NOT NULL, began TEXT NOT NULL,
  ended TEXT NOT NULL DEFAULT '', outcome TEXT NOT NULL DEFAULT '', person TEXT NOT NULL DEFAULT '');
CREATE TABLE decisions(n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, at TEXT NOT NULL, scope INTEGER NOT NULL,
  episode TEXT NOT NULL,
  step INTEGER NOT NULL, kind TEXT NOT NULL, query TEXT NOT NULL, candidates TEXT NOT NULL, chosen TEXT NOT NULL,
  propensity REAL NOT NULL, policy TEXT NOT NULL, details TEXT NOT NULL DEFAULT '', vector BLOB);
CREATE INDEX decisions_by_episode ON decisions(episode) WHERE episode <> '';
CREATE TABLE languages(name TEXT PRIMARY KEY) WITHOUT ROWID;
