"""Tasks and jobs in PostgreSQL, shared by any number of processes.

    adapter      the operations, each one transaction
    statements   the SQL of jobs, and of changes to tasks
    lists        the SQL of lists
    counts       what a transaction adds to the counts
    copying      the rows of a job in the binary format of COPY
    notices      what processes tell each other of their commits

Needs the extra `postgres` (psycopg 3).
"""

from __future__ import annotations

from .adapter import PostgresTaskStore

__all__ = ["PostgresTaskStore"]
