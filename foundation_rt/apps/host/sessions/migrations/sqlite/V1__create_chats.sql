-- Text that people or programs choose is kept as bytes, like all JSON: what SQLite and PostgreSQL
-- take as text differs.
CREATE TABLE chat (
    id INTEGER PRIMARY KEY,
    key BLOB NOT NULL UNIQUE,
    principal BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    last_active_at INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    version INTEGER NOT NULL,
    state BLOB NOT NULL,
    recent BLOB NOT NULL,
    running BLOB
);
CREATE INDEX chat_running ON chat (id) WHERE running IS NOT NULL;

CREATE TABLE chat_message (
    chat INTEGER NOT NULL,
    position INTEGER NOT NULL,
    id BLOB NOT NULL,
    body BLOB NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (chat, position)
);
CREATE UNIQUE INDEX chat_message_id ON chat_message (chat, id);

CREATE TABLE chat_event (
    chat INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    frame BLOB NOT NULL,
    PRIMARY KEY (chat, seq)
);

CREATE TABLE chat_turn (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    chat INTEGER NOT NULL,
    message_id BLOB NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX chat_turn_chat ON chat_turn (chat, position);

CREATE TABLE allowed (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    principal BLOB NOT NULL,
    digest TEXT NOT NULL
);
CREATE UNIQUE INDEX allowed_digest ON allowed (principal, digest);

CREATE TABLE probe (id INTEGER PRIMARY KEY, at INTEGER NOT NULL);
