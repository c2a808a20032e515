"""A ledger in a SQLite file: durable, on one machine, without a server.

    adapter         the public class
    messages        operations: messages are entered, received and sent again
    claims          operations: requests are claimed, completed and given back
    administration  operations: records are looked up, purged, listed, cancelled and requeued
    working_set     how records are written and read; loading a unit of work, and flushing it
    schema          the tables, version by version

Each operation of a ledger is a function that gets a connection in a transaction, and leaves the
transaction to its caller. Batches are read through ``json_each(?)``, one statement for any size
(1.5 us an id, against 4 us for a statement each), and written by `executemany`.
"""

from .adapter import SqliteAACPPersistenceAdapter as SqliteAACPPersistenceAdapter
