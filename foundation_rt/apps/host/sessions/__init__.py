"""The sessions of the chat host: chats that survive cuts, restarts and dead workers.

    store        the protocol of stores, its values, limits and errors
    memory, sqlite, postgres   the stores; sqlite and postgres perform the same `operations`;
                 rows, statements, postgres_workers are parts of them
    live_chat    a chat in memory: its messages, state, and the numbers of its events; pure
    interruption the events and messages that end a turn which cannot go on; pure
    saving       storing before showing; whether the store can be used
    turns        the turns of one chat, one at a time
    connection   one reader of a session: replay, then what happens
    session      one chat: its connections, and what they ask for
    sessions     all chats of this process

The rules are in spec/host-sessions.md.
"""
