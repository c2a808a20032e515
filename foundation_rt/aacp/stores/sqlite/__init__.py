"""A ledger in a SQLite file: what outlives the process, on one machine, without a server.

`adapter` is what others use. `committer` is the thread that owns the connection and commits what
waits together; `operations` says each operation of a ledger in SQL, `schema` where records are;
`presence` knows whether this process is alone with the file.
"""

from .adapter import SqliteAACPPersistenceAdapter as SqliteAACPPersistenceAdapter
