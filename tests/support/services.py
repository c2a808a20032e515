"""The services that some tests need: PostgreSQL, NATS, Redis.

Tests use what is reachable. Where a service is not, they skip and say so; with
`FOUNDATION_RT_TEST_SERVICES=required`, as in `.ci/run`, they fail instead.

    DATABASE_URL   postgresql://root@127.0.0.1:5432/test
    NATS_URL       nats://127.0.0.1:4222
    REDIS_URL      redis://127.0.0.1:6379

Every test works under names of its own (`unique_name`, `postgres_schema`), so tests may run in any
order and at the same time, and nothing of them is left.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from urllib.parse import urlsplit
from uuid import uuid4

POSTGRES_URL = os.environ.get("DATABASE_URL", "postgresql://root@127.0.0.1:5432/test")
NATS_URL = os.environ.get("NATS_URL", "nats://127.0.0.1:4222")
REDIS_URL = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379")

REQUIRED = os.environ.get("FOUNDATION_RT_TEST_SERVICES") == "required"

_PATIENCE_S = 20.0


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
        import pytest  # not above: processes that tests start would spend half of their start on it

        # Neither the URL nor its user: it may hold a password.
        reason = f"{service} at {host}:{port} is not reachable: {problem}"
        if REQUIRED:
            pytest.fail(f"{reason} (FOUNDATION_RT_TEST_SERVICES=required)", pytrace=False)
        pytest.skip(reason)
    return url


@cache
def _problem(host: str, port: int) -> str | None:
    """Why nothing answers there; None if something does."""
    try:
        socket.create_connection((host, port), _PATIENCE_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return None
