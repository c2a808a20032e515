-- Text that people or programs choose is kept as bytes, like all JSON: text in PostgreSQL cannot
-- have the character NUL.
CREATE TABLE {schema}.chat (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key bytea NOT NULL,
    principal bytea NOT NULL,
    created_at bigint NOT NULL,
    last_active_at bigint NOT NULL,
    last_seq bigint NOT NULL,
    first_seq bigint NOT NULL,
    version bigint NOT NULL,
    state bytea NOT NULL,
    recent bytea NOT NULL,
    running bytea,
    turn_id text COLLATE "C",
    worker text COLLATE "C",
    watched_at timestamptz,
    CONSTRAINT chat_key UNIQUE (key),
    CONSTRAINT chat_running CHECK (
        (running IS NULL) = (turn_id IS NULL) AND (running IS NULL) = (worker IS NULL)
    )
) WITH (fillfactor = 80);
CREATE INDEX chat_worker ON {schema}.chat (worker) WHERE worker IS NOT NULL;

CREATE TABLE {schema}.chat_message (
    chat bigint NOT NULL REFERENCES {schema}.chat ON DELETE CASCADE,
    position bigint NOT NULL,
    id bytea NOT NULL,
    body bytea NOT NULL,
    version bigint NOT NULL,
    PRIMARY KEY (chat, position),
    CONSTRAINT chat_message_id UNIQUE (chat, id)
);
CREATE INDEX chat_message_version ON {schema}.chat_message (chat, version);

CREATE TABLE {schema}.chat_event (
    chat bigint NOT NULL REFERENCES {schema}.chat ON DELETE CASCADE,
    seq bigint NOT NULL,
    frame bytea NOT NULL,
    PRIMARY KEY (chat, seq)
);

CREATE TABLE {schema}.chat_turn (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    chat bigint NOT NULL REFERENCES {schema}.chat ON DELETE CASCADE,
    message_id bytea NOT NULL,
    body bytea NOT NULL
);
CREATE INDEX chat_turn_chat ON {schema}.chat_turn (chat, position);

CREATE TABLE {schema}.allowed (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    principal bytea NOT NULL,
    digest text COLLATE "C" NOT NULL,
    CONSTRAINT allowed_digest UNIQUE (principal, digest)
);

-- A worker lives until then, by the clock of the database.
CREATE TABLE {schema}.worker (
    id text COLLATE "C" PRIMARY KEY,
    alive_until timestamptz NOT NULL
);

-- What somebody asked at one worker of a turn that runs at another one.
CREATE TABLE {schema}.command (
    id text COLLATE "C" PRIMARY KEY,
    worker text COLLATE "C" NOT NULL,
    key bytea NOT NULL,
    body bytea NOT NULL,
    is_taken boolean NOT NULL DEFAULT false,
    answer boolean,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX command_worker ON {schema}.command (worker) WHERE NOT is_taken;
