"""Tasks and jobs in PostgreSQL, shared by any number of processes.

    adapter      the operations, each one transaction
    statements   the SQL of jobs, of changes to tasks, and of notifications
    lists        the SQL of lists, and what a transaction adds to the counts
    copying      the rows of a job in the binary format of COPY

Needs the extra `postgres` (psycopg 3).
"""

from __future__ import annotations

from .adapter import PostgresTaskStore

__all__ = ["PostgresTaskStore"]
