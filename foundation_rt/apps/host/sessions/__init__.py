"""The sessions of the chat host: chats that survive cuts, restarts and dead workers.

    settings     limits and times
    errors       what callers of a session have to expect
    opening      the store that a setting names
    state        what a chat waits for and streams at one moment, folded from its events; pure
    interruption the events and messages that end a turn which cannot go on; pure
    recovery     the end of a turn whose process has died; pure
    store        the protocol of stores, and its values
    memory, sqlite, postgres   the stores; rows, statements, postgres_workers are parts of them
    records      what is recorded of chats
    availability whether the store can be used
    live_chat    a chat in memory, and the numbers of its events; pure
    saving       storing before showing
    turns        the turns of one chat, one at a time
    connection   one reader of a session: replay, then what happens
    session      one chat: its connections, and what they ask for
    sessions     all chats of this process

The rules are in spec/host-sessions.md.
"""
