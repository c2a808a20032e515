"""A ledger in a SQLite file: what outlives the process, on one machine, without a server.

`adapter` is what others use. `committer` is the thread that owns the connection and commits what
waits together; `schema` says where records are, `rows` how they are written and read; `presence`
knows whether this process is alone with the file.

Each operation of a ledger is a function in `entering`, `executing` or `keeping`. It gets a
connection in a transaction and leaves the transaction to its caller. What is decided about requests
and numbers is decided by the plain functions of `ledger`, `session_manager` and `records` on values
that were read; SQL says which values those are. Batches are read through ``json_each(?)``, one
statement whatever their size (1.5 us an id, against 4 us for a statement each), collected in a
`batch`, and written by `executemany`.
"""

from .adapter import SqliteAACPPersistenceAdapter as SqliteAACPPersistenceAdapter
