"""The tables of a ledger, version by version.

They are applied when a ledger is opened (`database.migrations`); any number of processes may do so
at once.

How the tables are shaped:

- `ledger` has one row: the names of the ledger, which are its creation time in ms since 1970 and a
  random one.
- `link` and `queue` are counters. A transaction that enters something locks them until it is
  committed. So numbers and positions have no gaps and are committed in their order; sequences of
  the database promise neither (AACP-10, AACP-22).
- `mailbox` is locked by a transaction that claims for an agent, and has the limits of that. It is
  another row than `queue`: otherwise claimers would wait for, or pass over, transactions that enter
  messages.
- `submission` is only added to by applications, in transactions that may stay open for long: so it
  has no key that two of them could both want, and refers to nothing. It is read by the number of
  such a transaction: reading it from its beginning would pass over everything that was taken since
  the oldest of them began.
- `held`, `queued` and `finished` say which indexes contain a request. `state` is in no index, so
  that claiming, renewing and giving back change none: PostgreSQL then writes the new version of the
  row beside the old one (HOT), for which pages are left one third empty.
"""

from __future__ import annotations

from ....base.database.migrations import migrations_of

_FIRST = """
CREATE TABLE {schema}.ledger (series bigint NOT NULL);
INSERT INTO {schema}.ledger VALUES (floor(extract(epoch FROM clock_timestamp()) * 1000));

CREATE TABLE {schema}.link (
    source_agent_id text COLLATE "C" NOT NULL,
    target_agent_id text COLLATE "C" NOT NULL,
    last_seq bigint NOT NULL DEFAULT 0,
    acked bigint NOT NULL DEFAULT 0,
    contiguous bigint NOT NULL DEFAULT 0,
    ahead bigint[] NOT NULL DEFAULT '{}',
    series bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (source_agent_id, target_agent_id)
) WITH (fillfactor = 20);

CREATE TABLE {schema}.queue (
    agent_id text COLLATE "C" PRIMARY KEY,
    last_position bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 20);

CREATE TABLE {schema}.mailbox (
    agent_id text COLLATE "C" PRIMARY KEY
);

CREATE TABLE {schema}.request (
    request_id text COLLATE "C" PRIMARY KEY,
    message_type text NOT NULL,
    source_agent_id text COLLATE "C" NOT NULL,
    target_agent_id text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    digest bytea NOT NULL,
    payload bytea NOT NULL,
    state text NOT NULL,
    created_at_ms bigint NOT NULL,
    expires_at_ms bigint NOT NULL,
    by_message boolean NOT NULL DEFAULT false,
    position bigint,
    epoch bigint NOT NULL DEFAULT 0,
    executions bigint NOT NULL DEFAULT 0,
    owner text,
    lease_until_ms bigint,
    not_before_ms bigint,
    result bytea,
    error bytea,
    completion_ref text,
    finished_at_ms bigint,
    held boolean NOT NULL DEFAULT false,
    queued boolean NOT NULL DEFAULT false,
    finished boolean NOT NULL DEFAULT false
) WITH (fillfactor = 67);
CREATE INDEX request_queue ON {schema}.request (target_agent_id, position) WHERE queued;
CREATE INDEX request_held ON {schema}.request (source_agent_id, target_agent_id, seq) WHERE held;
CREATE INDEX request_pending ON {schema}.request (created_at_ms, request_id)
    WHERE NOT finished;
CREATE INDEX request_expiry ON {schema}.request (expires_at_ms);

CREATE TABLE {schema}.message (
    message_id text COLLATE "C" PRIMARY KEY,
    request_id text COLLATE "C",
    source_agent_id text COLLATE "C" NOT NULL,
    target_agent_id text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    message_type text NOT NULL,
    payload bytea NOT NULL,
    state text NOT NULL,
    created_at_ms bigint NOT NULL,
    expires_at_ms bigint NOT NULL,
    attempts bigint NOT NULL,
    next_attempt_at_ms bigint
) WITH (fillfactor = 67);
CREATE INDEX message_outbox ON {schema}.message (source_agent_id, target_agent_id, seq)
    WHERE state <> 'ACKNOWLEDGED';
CREATE INDEX message_due ON {schema}.message (next_attempt_at_ms)
    WHERE next_attempt_at_ms IS NOT NULL;
CREATE INDEX message_expiry ON {schema}.message (expires_at_ms) WHERE state <> 'TOMBSTONE';
"""

_SECOND = """
ALTER TABLE {schema}.ledger ADD COLUMN uid text;
UPDATE {schema}.ledger SET uid = replace(gen_random_uuid()::text, '-', '');
"""

_SCHEDULES = """
CREATE TABLE {schema}.schedule (
    name text COLLATE "C" PRIMARY KEY,
    expression text NOT NULL,
    timezone text NOT NULL,
    target_agent_id text COLLATE "C" NOT NULL,
    payload bytea NOT NULL,
    missed text NOT NULL,
    ttl_ms bigint NOT NULL,
    created_at_ms bigint NOT NULL,
    revision bigint NOT NULL,
    decided_until_ms bigint NOT NULL,
    next_run_at_ms bigint,
    last_run_at_ms bigint
);
CREATE INDEX schedule_due ON {schema}.schedule (next_run_at_ms) WHERE next_run_at_ms IS NOT NULL;

CREATE TABLE {schema}.submission (
    number bigint GENERATED ALWAYS AS IDENTITY,
    transaction bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
    message_id text COLLATE "C" NOT NULL,
    request_id text COLLATE "C" NOT NULL,
    source_agent_id text COLLATE "C" NOT NULL,
    target_agent_id text COLLATE "C" NOT NULL,
    payload bytea NOT NULL,
    ttl_ms bigint NOT NULL,
    local boolean NOT NULL,
    PRIMARY KEY (transaction, target_agent_id, number)
);
CREATE INDEX submission_request ON {schema}.submission (request_id);
"""

_OPTIONS = """
ALTER TABLE {schema}.request
    ADD COLUMN priority smallint NOT NULL DEFAULT 0,
    ADD COLUMN retry bytea,
    ADD COLUMN delayed boolean NOT NULL DEFAULT false;
ALTER TABLE {schema}.message ADD COLUMN options bytea;
ALTER TABLE {schema}.submission ADD COLUMN options bytea;
DROP INDEX {schema}.request_queue;
CREATE INDEX request_queue ON {schema}.request (target_agent_id, priority DESC, position)
    WHERE queued;
CREATE INDEX request_delayed ON {schema}.request (not_before_ms) WHERE delayed;
"""

_LIMITS = """
ALTER TABLE {schema}.mailbox
    ADD COLUMN workers bigint NOT NULL DEFAULT 1,
    ADD COLUMN starts bigint NOT NULL DEFAULT 0,
    ADD COLUMN window_ms bigint NOT NULL DEFAULT 0,
    ADD COLUMN started text NOT NULL DEFAULT '';
"""

_ON_ENTRY = """
ALTER TABLE {schema}.request ADD COLUMN on_entry boolean NOT NULL DEFAULT false;
"""

MIGRATIONS = migrations_of((_FIRST, _SECOND, _SCHEDULES, _OPTIONS, _LIMITS, _ON_ENTRY))
"""The n-th migration makes version n out of version n - 1."""
