"""The sessions of the chat host: chats that survive cuts, restarts and dead workers.

    settings     limits and times
    errors       what callers of a session have to expect
    state        what a chat waits for and streams at one moment, folded from its events; pure
    interruption the events and messages that end a turn which cannot go on; pure
    store        the protocol of stores, and its values
    memory       the default store
    connection   one reader of a session: replay, then what happens
    session      one chat: its turns, numbering, storing before showing
    sessions     all chats of this process

The rules are in spec/host-sessions.md.
"""
