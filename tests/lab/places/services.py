"""The services that some tests need: PostgreSQL, NATS, Redis.

Tests use what is reachable. Where a service is not, they skip and say so; with
`FOUNDATION_RT_TEST_SERVICES=required`, as in `.ci/run`, they fail instead.

    DATABASE_URL   postgresql://root@127.0.0.1:5432/test
    NATS_URL       nats://127.0.0.1:4222
    REDIS_URL      redis://127.0.0.1:6379

Every test works under names of its own (`unique_name`, `postgres_schema`), or under those of tests
that have ended (`emptied_postgres_schema`), so tests may run in any order and at the same time, and
nothing of them is left.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NoReturn
from urllib.parse import urlsplit
from uuid import uuid4

POSTGRES_URL = os.environ.get("DATABASE_URL", "postgresql://root@127.0.0.1:5432/test")
NATS_URL = os.environ.get("NATS_URL", "nats://127.0.0.1:4222")
REDIS_URL = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379")

REQUIRED = os.environ.get("FOUNDATION_RT_TEST_SERVICES") == "required"

_PATIENCE_S = 20.0

_OFFLINE = re.compile("name resolution|Name or service|dns error|EAI_AGAIN|ENOTFOUND|unreachable")


def need_postgres() -> str:
    """Return the URL of a PostgreSQL server, or skip the test: always on Windows."""
    if sys.platform == "win32":
        import pytest

        pytest.skip("PostgreSQL, which is refused on Windows (WIN-41)")
    return _need("PostgreSQL", POSTGRES_URL, 5432)


def need_nats() -> str:
    """Return the URL of a NATS server with JetStream, or skip the test."""
    return _need("NATS", NATS_URL, 4222)


def need_redis() -> str:
    """Return the URL of a Redis server, or skip the test."""
    return _need("Redis", REDIS_URL, 6379)


def lacking(reason: str) -> NoReturn:
    """Skip the test for what is not there; fail it where everything has to be there."""
    import pytest  # not above: processes that tests start would spend half of their start on it

    if REQUIRED:
        pytest.fail(f"{reason} (FOUNDATION_RT_TEST_SERVICES=required)", pytrace=False)
    pytest.skip(reason)


def need_registry(said: str) -> None:
    """Skip the test if a client of a package registry has written that it did not reach it."""
    if found := _OFFLINE.search(said):
        lacking(f"the package registry is not reachable: {found[0]}")


def need_ps() -> None:
    """Skip the test where no `ps` tells the memory of a process, as in a slim image."""
    if shutil.which("ps") is None:
        lacking("ps, which measures memory, is not there")


def unique_name(prefix: str = "test") -> str:
    """Return a name that no other test has: of a schema, of a stream, of subjects."""
    return f"{prefix}_{uuid4().hex}"


@contextmanager
def postgres_schema() -> Iterator[tuple[str, str]]:
    """Yield the URL of a PostgreSQL server and a schema to make, which is dropped in the end."""
    url = need_postgres()
    import psycopg

    schema = unique_name()
    try:
        yield url, schema
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            _drop(connection, schema)


_emptied: dict[str, list[str]] = {}


@contextmanager
def emptied_postgres_schema(owner: str, *kept: str) -> Iterator[tuple[str, str]]:
    """Yield the URL of a PostgreSQL server and a schema whose tables are empty.

    To make the tables takes a hundred times as long as to empty them: a schema is used again by the
    next test of the same owner, and dropped when the tests end.

    Args:
        owner: whose tables are in it.
        kept: the tables whose rows are those of every new schema, beside those of migrations.
    """
    url = need_postgres()
    import psycopg

    idle = _emptied.setdefault(owner, [])
    schema = idle.pop() if idle else unique_name()
    try:
        yield url, schema
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            try:
                connection.execute("SET lock_timeout = '5s'")
                connection.execute(_emptying(connection, schema, kept))
                idle.append(schema)
            except psycopg.Error:  # the test has failed, and left something
                _drop(connection, schema)


def _emptying(connection: Any, schema: str, kept: tuple[str, ...]) -> bytes:
    tables = connection.execute(
        "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename <> ALL(%s)",
        (schema, ["migration", *kept]),
    )
    sequences = connection.execute(
        "SELECT sequencename FROM pg_sequences WHERE schemaname = %s", (schema,)
    )
    statements = [f"DELETE FROM {schema}.{table}" for (table,) in tables]
    statements += [f"ALTER SEQUENCE {schema}.{name} RESTART" for (name,) in sequences]
    return ";".join(statements).encode()


def drop_emptied_schemas() -> None:
    """Drop the schemas that were used several times."""
    if not any(_emptied.values()):
        return
    import psycopg

    with psycopg.connect(need_postgres(), autocommit=True) as connection:
        for idle in _emptied.values():
            while idle:
                _drop(connection, idle.pop())


def _drop(connection: Any, schema: str) -> None:
    connection.execute("SET client_min_messages = warning")
    connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())


@contextmanager
def postgres_database() -> Iterator[str]:
    """Yield the URL of an empty PostgreSQL database, which is dropped in the end."""
    url = need_postgres()
    import psycopg

    name = unique_name()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    try:
        yield urlsplit(url)._replace(path=f"/{name}").geturl()
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def _need(service: str, url: str, default_port: int) -> str:
    parts = urlsplit(url)
    host, port = parts.hostname or "127.0.0.1", parts.port or default_port
    problem = _problem(host, port)
    if problem is not None:
        # Neither the URL nor its user: it may hold a password.
        lacking(f"{service} at {host}:{port} is not reachable: {problem}")
    return url


@cache
def _problem(host: str, port: int) -> str | None:
    """Why nothing answers there; None if something does."""
    try:
        socket.create_connection((host, port), _PATIENCE_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return None
