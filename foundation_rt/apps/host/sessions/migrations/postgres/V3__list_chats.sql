-- What lists and searches look at. Titles and words of chats that are there already are written by
-- the store, some at a time: SQL cannot fold them as it does.
ALTER TABLE {schema}.chat
    ADD COLUMN title bytea,
    ADD COLUMN said_at bigint,
    ADD COLUMN is_pinned integer NOT NULL DEFAULT 0;
UPDATE {schema}.chat AS c SET said_at = last_active_at
WHERE EXISTS (SELECT FROM {schema}.chat_message m WHERE m.chat = c.id)
   OR EXISTS (SELECT FROM {schema}.chat_turn t WHERE t.chat = c.id);
CREATE INDEX chat_listed ON {schema}.chat (principal, is_pinned, said_at, key)
    WHERE said_at IS NOT NULL;
CREATE INDEX chat_untitled ON {schema}.chat (id) WHERE said_at IS NOT NULL AND title IS NULL;

ALTER TABLE {schema}.chat_message ADD COLUMN words bytea;
CREATE INDEX chat_message_wordless ON {schema}.chat_message (chat, position) WHERE words IS NULL;
