"""What was sent to a server in confidence does not come back in its errors."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.client.transports.http_headers import common_headers
from foundation_rt.client.transports.redaction import MASK, RedactingReceiver, Secrets
from foundation_rt.protocol.framing import LineTooLong
from tests.lab.peers.scripted_http import Heard

SECRET = "hunter2/hunter2+=="
URL = "http://me-myself:p%40ssword@host/mcp?key=k%2Fk%2Fk%2Fk%2Fk&n=1"
HEADERS = {"Authorization": f"Bearer {SECRET}", "X-Short": "short"}


def secrets(url: str = "http://host/", headers: dict[str, str] | None = None) -> Secrets:
    return Secrets.of(url, common_headers(url, HEADERS if headers is None else headers))


def handed_on(line: bytes | LineTooLong) -> bytes | LineTooLong:
    """Return a message as it is after redaction."""
    heard = Heard()
    RedactingReceiver(heard, secrets()).received(line, "r")
    return heard.told[0][0]


def error_in(**said: Any) -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", "id": "1", "error": {"code": 1, **said}})


@pytest.mark.rule("CHTTP-03", "CHTTP-37")
@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (f"no such token: {SECRET}", f"no such token: {MASK}"),
        (f"no such token: Bearer {SECRET}!", f"no such token: {MASK}!"),
        (f"{SECRET}{SECRET}", f"{MASK}{MASK}"),
        ("this is not a Bearer token", "this is not a Bearer token"),
        ("foundation-rt, identity, short, host", "foundation-rt, identity, short, host"),
    ],
)
def test_error_that_repeats_a_header_of_the_user_is_masked(said: str, shown: str) -> None:
    assert secrets().redact(said) == shown


@pytest.mark.rule("CHTTP-37")
@pytest.mark.parametrize(
    "said",
    [
        "me-myself",
        "p@ssword",
        "p%40ssword",
        "bWUtbXlzZWxmOnBAc3N3b3Jk",
        "key=k%2Fk%2Fk%2Fk%2Fk&n=1",
        "k%2Fk%2Fk%2Fk%2Fk",
        "k/k/k/k/k",
    ],
)
def test_error_that_repeats_a_secret_of_the_url_is_masked(said: str) -> None:
    assert secrets(URL, {}).redact(f"for {said}.") == f"for {MASK}."


def test_without_a_secret_nothing_is_masked() -> None:
    assert secrets(headers={}).redact(SECRET) == SECRET


@pytest.mark.rule("CHTTP-37")
@pytest.mark.parametrize("is_batch", [False, True])
def test_an_error_is_handed_on_without_secrets(is_batch: bool) -> None:
    line = error_in(message=f"bad {SECRET}", data={"head": [{SECRET: SECRET}], "n": 1, "x": None})
    # As some servers write it: a slash need not be escaped, and may.
    line = line.replace(b"/", rb"\/")
    shown = handed_on(b"[" + line + b"]" if is_batch else line)
    assert isinstance(shown, bytes)
    assert orjson.loads(shown) == ([expected] if is_batch else expected)


expected = {
    "jsonrpc": "2.0",
    "id": "1",
    "error": {
        "code": 1,
        "message": f"bad {MASK}",
        "data": {"head": [{MASK: MASK}], "n": 1, "x": None},
    },
}


@pytest.mark.rule("CHTTP-37")
@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "id": "1", "result": {"error": SECRET}},
        {"jsonrpc": "2.0", "id": "1", "result": {"a": SECRET}, "error": None},
        {"jsonrpc": "2.0", "method": "notifications/message", "params": {"error": SECRET}},
        {"jsonrpc": "2.0", "id": 1, "method": "ping", "error": SECRET},
        [],
        "error",
    ],
    ids=repr,
)
def test_message_without_an_error_is_passed_on_unchanged(message: Any) -> None:
    line = orjson.dumps(message)
    assert handed_on(line) == line


@pytest.mark.rule("CHTTP-37")
@pytest.mark.parametrize("depth", [101, 250, 900])
def test_data_that_is_too_deep_is_left_out(depth: int) -> None:
    line = b'{"jsonrpc":"2.0","id":"1","error":{"code":1,"message":"m","data":%b%b%b}}'
    shown = handed_on(line % (b"[" * depth, orjson.dumps(SECRET), b"]" * depth))
    assert isinstance(shown, bytes)
    assert SECRET.encode() not in shown
    assert orjson.loads(shown)["error"]["message"] == "m"


@given(st.binary() | st.binary().map(lambda tail: error_in(message=SECRET)[:-3] + tail))
def test_whatever_comes_is_handed_on(line: bytes) -> None:
    assert isinstance(handed_on(line), bytes)
    too_long = LineTooLong(5)
    assert handed_on(too_long) is too_long
