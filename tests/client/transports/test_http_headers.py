"""What the heads of requests say, and what those of responses mean."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.base.http_client.values import read_retry_after, readable_url, same_origin
from foundation_rt.client.targets import HttpServer
from foundation_rt.client.transports.http_headers import common_headers
from foundation_rt.errors import UsageError
from foundation_rt.protocol.http_headers import decode_header_value, encode_header_value
from tests.lab.peers.client_vectors import cases

SECRET = "hunter2hunter2"


# -- describing a server


@pytest.mark.rule("CHTTP-01")
@pytest.mark.parametrize(
    "url",
    [
        "",
        "host/mcp",
        "ftp://host/",
        "http://",
        "http:///mcp",
        "https://host:99999/",
        "http://[::1",
        "http://host:0/",
        f"file:///{SECRET}",
        f"wss://{SECRET}@host/",
    ],
)
def test_invalid_url_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(UsageError, match="http://host/path") as raised:
        HttpServer(url)
    assert SECRET not in str(raised.value)


@pytest.mark.rule("CHTTP-01")
@pytest.mark.parametrize(
    "headers",
    [
        {"": "x"},
        {"a b": "x"},
        {"a:": "x"},
        {"\xe9": "x"},
        {1: "x"},
        {"a": f"{SECRET}\r\nb: c"},
        {"a": f"{SECRET}\0"},
        {"a": f" {SECRET}"},
        {"a": f"{SECRET} "},
        {"a": f"{SECRET}\u20ac"},
        {"a": None},
    ],
)
def test_headers_that_http_does_not_allow_are_refused_by_name(headers: Any) -> None:
    with pytest.raises(UsageError) as raised:
        HttpServer("http://host/", headers)
    assert SECRET not in str(raised.value)
    assert repr(next(iter(headers))).strip("'") in str(raised.value)


@pytest.mark.rule("CHTTP-02")
@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"https://me:{SECRET}@host/mcp?key={SECRET}#{SECRET}", "https://host/mcp"),
        (f"http://{SECRET}@[::1]:8000", "http://[::1]:8000/"),
        ("http://h:80/a/b", "http://h:80/a/b"),
    ],
)
def test_description_of_a_url_has_no_secrets(url: str, shown: str) -> None:
    assert readable_url(url) == shown
    assert SECRET not in repr(HttpServer(url, {"authorization": SECRET}))


@pytest.mark.rule("CHTTP-03")
def test_the_user_s_headers_go_along_and_the_url_s_password_as_one_of_them() -> None:
    url = "https://me:p%40ss@host/mcp"
    found = dict(common_headers(url, {"X-Key": "\xe9"}))
    assert found[b"x-key"] == b"\xe9"
    assert found[b"authorization"] == b"Basic bWU6cEBzcw=="
    assert dict(common_headers(url, {"Authorization": "Bearer x"}))[b"authorization"] == b"Bearer x"
    assert dict(common_headers(url, {"User-Agent": "mine"}))[b"user-agent"] == b"mine"


@pytest.mark.rule("CHTTP-04", "CHTTP-05")
def test_user_cannot_set_headers_of_the_transport() -> None:
    own = ["Accept", "accept-encoding", "Connection", "Content-Encoding", "content-LENGTH"]
    own += ["Content-Type", "Last-Event-ID", "Transfer-Encoding", "Mcp-Method", "Mcp-Name"]
    own += ["MCP-Protocol-Version", "Mcp-Session-Id", "mcp-param-x"]
    found = dict(common_headers("http://host/", dict.fromkeys(own, "mine") | {"Host": "there"}))
    agent = found.pop(b"user-agent")
    assert agent.startswith(b"foundation-rt/")
    assert found == {b"accept-encoding": b"identity", b"host": b"there"}


@pytest.mark.rule("CHTTP-31")
@pytest.mark.parametrize("vector", cases("http-headers", "same_origin"))
def test_an_origin_is_scheme_host_and_port(vector: dict[str, Any]) -> None:
    assert same_origin(vector["url"], vector["other"]) is vector["same_origin"]


# -- what a message's head says


@pytest.mark.rule("CHTTP-09")
@pytest.mark.parametrize("vector", cases("http-headers", "header"))
def test_values_that_no_header_holds_are_base64(vector: dict[str, Any]) -> None:
    assert encode_header_value(vector["text"]) == vector["header"]


@pytest.mark.rule("CHTTP-09", "HEAD-13")
@given(st.text(st.characters(exclude_categories=["Cs"])) | st.text("=?base64 \t", max_size=20))
def test_encoded_header_is_valid_and_decoded_by_the_server(text: str) -> None:
    value = encode_header_value(text)
    assert decode_header_value(value) == text
    assert value.isascii()
    assert value.isprintable()
    assert value == value.strip()


# -- what a response's head means


@pytest.mark.rule("CHTTP-16")
@pytest.mark.parametrize("vector", cases("http-headers", "retry_after"))
def test_retry_after_is_seconds_or_a_date(vector: dict[str, Any]) -> None:
    assert read_retry_after(vector["retry_after"], now=40.0) == vector["seconds"]
    assert read_retry_after(None, now=40.0) is None


@pytest.mark.rule("CHTTP-16")
@given(st.text() | st.text("0123456789 :,JanGMT+-", max_size=40))
def test_no_retry_after_makes_it_raise_or_run_backwards(header: str) -> None:
    seconds = read_retry_after(header, now=1e9)
    assert seconds is None or seconds >= 0
