"""The statements of chats, as PostgreSQL takes them, and what SQLite takes in their place.

SQLite takes the others, too, without schemas, types and locks of rows.
"""

from __future__ import annotations

_CHAT = "(SELECT id FROM {schema}.chat WHERE key = %b)"

CREATE = """
INSERT INTO {schema}.chat (key, recent, principal, created_at, last_active_at, last_seq, first_seq,
                           version, state)
VALUES (%b, %b, %b, %b::bigint, %b::bigint, %b::bigint, %b::bigint, %b::bigint, %b)
"""
HEAD = """
SELECT principal, created_at, last_active_at, last_seq, first_seq, version, state, running
FROM {schema}.chat WHERE key = %b
"""
OWNED = "SELECT id FROM {schema}.chat WHERE key = %b AND principal = %b"
MESSAGES = f"""
SELECT position, body FROM {{schema}}.chat_message WHERE chat = {_CHAT} AND version > %b::bigint
ORDER BY position
"""
SIZES = f"""
SELECT length(frame) FROM {{schema}}.chat_event WHERE chat = {_CHAT} ORDER BY seq
"""
TAIL = """
SELECT seq, frame FROM {schema}.chat_event JOIN {schema}.chat ON chat.id = chat_event.chat
WHERE seq > last_seq - %b::bigint AND key = %b ORDER BY seq
"""
WAITING = f"SELECT body FROM {{schema}}.chat_turn WHERE chat = {_CHAT} ORDER BY position"
FRAMES_AFTER = f"""
SELECT seq, frame FROM {{schema}}.chat_event WHERE chat = {_CHAT} AND seq > %b::bigint ORDER BY seq
"""
FRAMES = f"""
SELECT seq, frame FROM {{schema}}.chat_event
WHERE chat = {_CHAT} AND seq > %b::bigint AND seq <= %b::bigint ORDER BY seq LIMIT %b::bigint
"""
DELETE = "DELETE FROM {schema}.chat WHERE key = %b AND principal = %b RETURNING id"

LISTED = """
SELECT key, title, said_at, is_pinned FROM {schema}.chat
WHERE principal = %b AND said_at IS NOT NULL
AND (is_pinned, said_at, key) < (%b::integer, %b::bigint, %b)
ORDER BY is_pinned DESC, said_at DESC, key DESC LIMIT %b::bigint
"""
HAVING = """
SELECT key FROM {schema}.chat AS c WHERE key = ANY(%b::bytea[]) AND EXISTS (
    SELECT FROM {schema}.chat_message m WHERE m.chat = c.id AND position(%b IN m.words) > 0
)
"""
CHANGE = """
UPDATE {schema}.chat SET title = coalesce(%b, title), is_pinned = coalesce(%b::integer, is_pinned)
WHERE key = %b AND principal = %b RETURNING id
"""
# Rows that another worker works on are left to it: nobody waits, so there is no deadlock.
UNTITLED = """
SELECT id, (SELECT body FROM {schema}.chat_message WHERE chat = c.id ORDER BY position LIMIT 1)
FROM {schema}.chat AS c WHERE said_at IS NOT NULL AND title IS NULL
LIMIT %b::bigint FOR UPDATE SKIP LOCKED
"""
SET_TITLES = """
UPDATE {schema}.chat SET title = given.title
FROM unnest(%b::bigint[], %b::bytea[]) AS given (id, title) WHERE chat.id = given.id
"""
WORDLESS = """
SELECT chat, position, body FROM {schema}.chat_message WHERE words IS NULL
LIMIT %b::bigint FOR UPDATE SKIP LOCKED
"""
SET_WORDS = """
UPDATE {schema}.chat_message AS m SET words = given.words
FROM unnest(%b::bigint[], %b::bigint[], %b::bytea[]) AS given (chat, position, words)
WHERE m.chat = given.chat AND m.position = given.position
"""

_IS_IDLE = """
last_active_at < %b::bigint AND running IS NULL
AND (watched_at IS NULL OR watched_at < clock_timestamp() - interval '1 hour')
"""
PURGEABLE = f"""
SELECT id, key, {_IS_IDLE} FROM {{schema}}.chat WHERE id > %b::bigint ORDER BY id LIMIT %b::bigint
"""
PURGE = f"""
DELETE FROM {{schema}}.chat WHERE id = %b::bigint AND {_IS_IDLE} RETURNING key
"""

LOCK_RECENT = "SELECT id, recent, running FROM {schema}.chat WHERE key = %b FOR UPDATE"
COUNT_TURNS = """
SELECT EXISTS (SELECT 1 FROM {schema}.chat_message m WHERE m.chat = c.id AND m.id = %(name)b)
       OR EXISTS (SELECT 1 FROM {schema}.chat_turn t WHERE t.chat = c.id
                  AND t.message_id = %(name)b),
       (SELECT count(*) FROM {schema}.chat_turn t WHERE t.chat = c.id)
FROM {schema}.chat AS c WHERE key = %(key)b
"""
NOTE_MESSAGE = """
UPDATE {schema}.chat
SET recent = %(recent)b, last_active_at = %(now)b::bigint, said_at = %(now)b::bigint,
    title = coalesce(title, %(title)b)
WHERE id = %(chat)b::bigint
"""
ADD_TURN = """
INSERT INTO {schema}.chat_turn (chat, message_id, body) VALUES (%b::bigint, %b, %b)
"""
LOCK_RUNNING = """
SELECT id, version, running, worker FROM {schema}.chat WHERE key = %b FOR UPDATE
"""
HOLD_LEASE = """
SELECT 1 FROM {schema}.worker WHERE id = %b::text AND alive_until > clock_timestamp() FOR SHARE
"""
NEXT_TURN = f"""
SELECT position, body FROM {{schema}}.chat_turn WHERE chat = {_CHAT} ORDER BY position LIMIT 1
"""
DROP_TURN = "DELETE FROM {schema}.chat_turn WHERE position = %b::bigint"
RUN = """
UPDATE {schema}.chat
SET running = %(running)b, turn_id = %(turn_id)b::text, worker = %(worker)b::text
WHERE id = %(chat)b::bigint
"""
WRITE = """
UPDATE {schema}.chat
SET last_seq = %(last_seq)b::bigint, first_seq = %(first_seq)b::bigint,
    last_active_at = %(last_active_at)b::bigint, state = %(state)b, version = version + 1,
    running = CASE WHEN %(ends)b::boolean THEN NULL ELSE running END,
    turn_id = CASE WHEN %(ends)b::boolean THEN NULL ELSE turn_id END,
    worker = CASE WHEN %(ends)b::boolean THEN NULL ELSE worker END
WHERE key = %(key)b AND turn_id IS NOT DISTINCT FROM %(fence)b::text
RETURNING id, version
"""
# Both are idempotent: a commit whose result is unknown is repeated.
PUT_MESSAGES = """
INSERT INTO {schema}.chat_message (chat, version, position, id, body, words)
SELECT * FROM unnest(
    %b::bigint[], %b::bigint[], %b::bigint[], %b::bytea[], %b::bytea[], %b::bytea[]
)
ON CONFLICT (chat, position)
DO UPDATE SET body = excluded.body, words = excluded.words, version = excluded.version
"""
ADD_EVENTS = """
INSERT INTO {schema}.chat_event (chat, seq, frame)
SELECT * FROM unnest(%b::bigint[], %b::bigint[], %b::bytea[])
ON CONFLICT (chat, seq) DO NOTHING
"""
DROP_EVENTS = "DELETE FROM {schema}.chat_event WHERE chat = %b::bigint AND seq < %b::bigint"

IS_WATCHED = """
SELECT watched_at > clock_timestamp() - %b::float8 * interval '1 s'
FROM {schema}.chat WHERE key = %b
"""
WATCH = """
UPDATE {schema}.chat SET watched_at = clock_timestamp() WHERE key = ANY(%b::bytea[])
"""
VERSIONS = """
SELECT key, version, turn_id, watched_at > clock_timestamp() - interval '30 minutes'
FROM {schema}.chat WHERE key = ANY(%b::bytea[])
"""

DECISIONS = "SELECT subject, word FROM {schema}.decision WHERE principal = %b"
FORGET_DECISION = "DELETE FROM {schema}.decision WHERE principal = %b AND subject = %b::text"
DECIDE = """
INSERT INTO {schema}.decision (principal, subject, word) VALUES (%b, %b::text, %b::text)
ON CONFLICT (principal, subject) DO UPDATE SET word = excluded.word
"""
DROP_DECISIONS = """
DELETE FROM {schema}.decision WHERE principal = %b AND position NOT IN (
    SELECT position FROM {schema}.decision WHERE principal = %b ORDER BY position DESC
    LIMIT %b::bigint
)
"""

# -- SQLite ---------------------------------------------------------------------------------------

HAS = f"SELECT 1 FROM {{schema}}.chat_message WHERE chat = {_CHAT} AND instr(words, %b) LIMIT 1"
RUNNING = "SELECT key FROM {schema}.chat WHERE running IS NOT NULL LIMIT 1"
SQLITE = {
    SET_TITLES: "UPDATE chat SET title = ?2 WHERE id = ?1",
    SET_WORDS: "UPDATE chat_message SET words = ?3 WHERE chat = ?1 AND position = ?2",
    PURGEABLE: """
SELECT id, key, last_active_at < ? AND running IS NULL FROM chat WHERE id > ? ORDER BY id LIMIT ?
""",
    PURGE: """
DELETE FROM chat WHERE id = ? AND last_active_at < ? AND running IS NULL RETURNING key
""",
    LOCK_RUNNING: "SELECT id, version, running, NULL FROM chat WHERE key = ?",
    RUN: "UPDATE chat SET running = :running WHERE id = :chat",
    WRITE: """
UPDATE chat
SET last_seq = :last_seq, first_seq = :first_seq, last_active_at = :last_active_at, state = :state,
    version = version + 1, running = CASE WHEN :ends THEN NULL ELSE running END
WHERE key = :key AND turn_id(running) IS :fence
RETURNING id, version
""",
    PUT_MESSAGES: """
INSERT OR REPLACE INTO chat_message (chat, version, position, id, body, words)
VALUES (?, ?, ?, ?, ?, ?)
""",
    ADD_EVENTS: "INSERT OR REPLACE INTO chat_event (chat, seq, frame) VALUES (?, ?, ?)",
}

# -- workers --------------------------------------------------------------------------------------

JOIN = """
INSERT INTO {schema}.worker (id, alive_until)
VALUES (%b::text, clock_timestamp() + %b::float8 * interval '1 s')
"""
RENEW = """
UPDATE {schema}.worker SET alive_until = clock_timestamp() + %b::float8 * interval '1 s'
WHERE id = %b::text RETURNING 1
"""
LEAVE = "DELETE FROM {schema}.worker WHERE id = %b::text"
BURY = "DELETE FROM {schema}.worker WHERE alive_until < clock_timestamp()"
ORPHANS = """
SELECT key FROM {schema}.chat AS c
WHERE worker IS NOT NULL AND NOT EXISTS (SELECT FROM {schema}.worker w WHERE w.id = c.worker)
LIMIT 100
"""
RUNS_AT = "SELECT worker FROM {schema}.chat WHERE key = %b"
ASK = """
INSERT INTO {schema}.command (id, worker, key, body) VALUES (%b::text, %b::text, %b, %b)
"""
TAKE = """
UPDATE {schema}.command SET is_taken = true
WHERE worker = %b::text AND NOT is_taken RETURNING id, key, body
"""
ANSWER = "UPDATE {schema}.command SET answer = %b::boolean WHERE id = %b::text"
READ_ANSWER = "SELECT answer FROM {schema}.command WHERE id = %b::text"
DROP_COMMAND = "DELETE FROM {schema}.command WHERE id = %b::text"
DROP_COMMANDS = """
DELETE FROM {schema}.command WHERE created_at < clock_timestamp() - interval '1 minute'
"""
NOTIFY = "SELECT pg_notify(%b::text, %b::text)"
