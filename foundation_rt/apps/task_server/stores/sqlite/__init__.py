"""Tasks and jobs in a SQLite file: on one machine, for several processes, without a server.

    adapter     the public class
    jobs        operations: jobs are submitted, claimed, completed and removed
    tasks       operations: tasks are read, claimed, changed and deleted
    listing     operations: pages of tasks, each along the index that fits it
    counts      how many tasks there are, and who stores them: kept by every operation
    change_log  what was changed, for every process that has the file open
    tables      the tables, from the migrations in `stores/migrations/sqlite/`, and their values

Each operation is a function that gets a connection in a transaction, and leaves the transaction to
its caller. It uses no statement that SQLite 3.24 does not know.
"""

from .adapter import SqliteTaskStore as SqliteTaskStore
