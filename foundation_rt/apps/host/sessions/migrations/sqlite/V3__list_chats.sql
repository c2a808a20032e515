-- What lists and searches look at. Titles and words of chats that are there already are written by
-- the store, some at a time: SQL cannot fold them as it does.
ALTER TABLE chat ADD COLUMN title BLOB;
ALTER TABLE chat ADD COLUMN said_at INTEGER;
ALTER TABLE chat ADD COLUMN is_pinned INTEGER NOT NULL DEFAULT 0;
UPDATE chat SET said_at = last_active_at
WHERE EXISTS (SELECT 1 FROM chat_message WHERE chat_message.chat = chat.id)
   OR EXISTS (SELECT 1 FROM chat_turn WHERE chat_turn.chat = chat.id);
CREATE INDEX chat_listed ON chat (principal, is_pinned, said_at, key) WHERE said_at IS NOT NULL;
CREATE INDEX chat_untitled ON chat (id) WHERE said_at IS NOT NULL AND title IS NULL;

ALTER TABLE chat_message ADD COLUMN words BLOB;
CREATE INDEX chat_message_wordless ON chat_message (chat, position) WHERE words IS NULL;
