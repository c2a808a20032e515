"""The tables of a ledger, and how those of an older version become those of the newest.

A file says by its `application_id` that it is a ledger, and by its `user_version` of which version.

Design:

* Tables with rowids and an index on the id, not WITHOUT ROWID: ids are random, and so rows are
  written one behind the other, and only the entries of an index, a tenth of their size, all over.
* Columns that change come first, payloads last: most queries then do not read the further pages of
  large payloads.
* The queue of an agent is an index of its unfinished requests only.
"""

from __future__ import annotations

import sqlite3

from ....base.database.migrations import migrate_sqlite, migrations_of

APPLICATION_ID = 0x41414350  # "AACP"

_FIRST = """
CREATE TABLE requests (
    id INTEGER PRIMARY KEY,
    request_id TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    executions INTEGER NOT NULL,
    owner TEXT,
    lease_until_ms INTEGER,
    not_before_ms INTEGER,
    position INTEGER,
    message_type TEXT NOT NULL,
    source_agent_id TEXT NOT NULL,
    target_agent_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    by_message INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    finished_at_ms INTEGER,
    completion_ref TEXT,
    digest BLOB NOT NULL,
    result BLOB,
    error BLOB,
    payload BLOB NOT NULL
);
CREATE INDEX queues ON requests (target_agent_id, position)
    WHERE position IS NOT NULL AND finished_at_ms IS NULL;
CREATE INDEX held ON requests (source_agent_id, target_agent_id, seq)
    WHERE state = 'HELD';
CREATE INDEX requests_by_expiry ON requests (expires_at_ms);
CREATE TABLE messages (
    id INTEGER PRIMARY KEY,
    message_id TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    next_attempt_at_ms INTEGER,
    request_id TEXT,
    source_agent_id TEXT NOT NULL,
    target_agent_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    message_type TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    payload BLOB NOT NULL
);
CREATE INDEX outbox ON messages (source_agent_id, target_agent_id, seq)
    WHERE state IN ('PENDING', 'TOMBSTONE');
CREATE INDEX attempts ON messages (next_attempt_at_ms)
    WHERE next_attempt_at_ms IS NOT NULL;
CREATE INDEX messages_by_expiry ON messages (expires_at_ms);
CREATE TABLE links (
    source_agent_id TEXT NOT NULL,
    target_agent_id TEXT NOT NULL,
    last_seq INTEGER NOT NULL,
    acked INTEGER NOT NULL,
    contiguous INTEGER NOT NULL,
    ahead TEXT NOT NULL,  -- JSON: the numbers received beyond contiguous
    series INTEGER NOT NULL,  -- whose numbers those two are
    PRIMARY KEY (source_agent_id, target_agent_id)
) WITHOUT ROWID;
-- One row: the last position given out.
CREATE TABLE positions (last INTEGER NOT NULL);
INSERT INTO positions VALUES (0);
-- One row: the name of the ledger, which is its creation time in ms since 1970.
CREATE TABLE ledger (series INTEGER NOT NULL);
INSERT INTO ledger
    VALUES (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER));
"""

_SECOND = """
-- One row, once the file was opened: see `ledger_clock`.
CREATE TABLE clock (boot_id TEXT NOT NULL, origin_ms INTEGER NOT NULL, last_ms INTEGER NOT NULL);
"""

_THIRD = """
-- The unique name of the ledger.
ALTER TABLE ledger ADD COLUMN uid TEXT NOT NULL DEFAULT '';
UPDATE ledger SET uid = lower(hex(randomblob(16)));
"""

_SCHEDULES = """
CREATE TABLE schedules (
    name TEXT PRIMARY KEY,
    expression TEXT NOT NULL,
    timezone TEXT NOT NULL,
    target_agent_id TEXT NOT NULL,
    payload BLOB NOT NULL,
    missed TEXT NOT NULL,
    ttl_ms INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    decided_until_ms INTEGER NOT NULL,
    next_run_at_ms INTEGER,
    last_run_at_ms INTEGER
);
CREATE INDEX schedules_due ON schedules (next_run_at_ms) WHERE next_run_at_ms IS NOT NULL;
"""

_OPTIONS = """
-- When and how requests are executed, if their senders said so.
ALTER TABLE requests ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;
ALTER TABLE requests ADD COLUMN retry BLOB;
ALTER TABLE messages ADD COLUMN options BLOB;
DROP INDEX queues;
CREATE INDEX queues ON requests (target_agent_id, priority DESC, position)
    WHERE position IS NOT NULL AND finished_at_ms IS NULL;
CREATE INDEX delayed ON requests (not_before_ms) WHERE state = 'DELAYED';
"""

_LIMITS = """
-- The agents that have limits.
CREATE TABLE agents (
    agent_id TEXT PRIMARY KEY,
    workers INTEGER NOT NULL,
    starts INTEGER NOT NULL,
    window_ms INTEGER NOT NULL,
    started TEXT NOT NULL DEFAULT ''  -- JSON: the executions that began in the last window
) WITHOUT ROWID;
"""

MIGRATIONS = migrations_of((_FIRST, _SECOND, _THIRD, _SCHEDULES, _OPTIONS, _LIMITS))
"""The n-th migration makes version n out of version n - 1."""


def migrate(connection: sqlite3.Connection, path: str) -> None:
    """Bring the tables of a ledger to the newest version; make those of an empty file.

    Raises:
        UsageError: the file is something else, or of a version that is not known here.
        sqlite3.Error: it could not be done.
    """
    migrate_sqlite(
        connection,
        path,
        MIGRATIONS,
        application="foundation-rt aacp",
        application_id=APPLICATION_ID,
        verify=False,
    )
