"""Secrets that are found by their shape, and not by the key they stand under."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt.base.clock import ManualClock
from foundation_rt.base.logs.logger import MemorySink, StructuredLogger
from foundation_rt.base.logs.redaction import REDACTED, Redactor, mask_secrets
from foundation_rt.errors import describe_exception

redactor = Redactor()

SECRET = "hunter2"

KEYS = (
    *("passwd", "pwd", "passphrase", "pass", "passcode", "auth", "jwt", "authtoken"),
    *("refreshtoken", "sessionid", "credential", "credentials", "clientsecret", "dbpassword"),
    *("privatekey", "dsn", "DATABASE_URL", "connectionString", "signature", "otp", "pin", "ssn"),
    *("PGPASSWORD", "accesstoken", "client_secrets", "db.pass", "user-pin", "X-Auth-Token"),
)
HARMLESS_KEYS = (
    *("keyboard", "passenger", "pinned", "authorName", "compass", "spinner", "author", "passing"),
    *("authority", "option", "signatureless", "opinion", "bypass", "tokenizer", "pinnacle"),
)


def logged(fields: dict[str, Any], message: str = "m") -> bytes:
    """Both lines of a record that is written twice: the second may take the shorter way."""
    lines: list[bytes] = []

    class Sink(MemorySink):
        def write(self, line: bytes) -> None:
            lines.append(line)

    logger = StructuredLogger(Sink(), ManualClock())
    for _ in range(2):
        logger.info(message, fields)
    assert lines[0] == lines[1]
    return lines[0]


@pytest.mark.rule("LOG-07")
@pytest.mark.rule("LOG-32")
@pytest.mark.parametrize("key", KEYS)
def test_secret_keys(key: str) -> None:
    assert redactor.is_secret(key)
    assert redactor.redact({"deep": [{key: SECRET}]}) == {"deep": [{key: REDACTED}]}


@pytest.mark.rule("LOG-07")
@pytest.mark.rule("LOG-32")
@pytest.mark.parametrize("key", HARMLESS_KEYS)
def test_harmless_keys(key: str) -> None:
    assert not redactor.is_secret(key)
    assert (
        mask_secrets(f"{key}=x {key}: x --{key} x", redactor.is_secret)
        == f"{key}=x {key}: x --{key} x"
    )


TEXTS = (
    ("postgres://bob:{}@db:5432/x", "postgres://bob:[REDACTED]@db:5432/x"),
    ("redis://:{}@db", "redis://:[REDACTED]@db"),
    ("amqp://a:x@{}@db/", "amqp://a:[REDACTED]@db/"),
    ("Bearer {} is invalid", "Bearer [REDACTED] is invalid"),
    ("got bearer {}", "got bearer [REDACTED]"),
    ("BEARER {}", "BEARER [REDACTED]"),
    ("password={} user=bob", "password=[REDACTED] user=bob"),
    ("Server=db;Password={};Database=x", "Server=db;Password=[REDACTED]"),
    ("/path?a=b&access_token={}&c=d", "/path?a=b&access_token=[REDACTED]"),
    ("password = '{} a' user", "password = [REDACTED] user"),
    ("password: {}", "password: [REDACTED]"),
    ("token := {}", "token := [REDACTED]"),
    ("'token' => '{}'", "'token' => [REDACTED]"),
    ('{{"password":"{}"}}', '{{"password":[REDACTED]}}'),
    ("{{'password':'{}', 'a': 1}}", "{{'password':[REDACTED], 'a': 1}}"),
    ('{{\\"password\\": \\"a {}\\"}}', '{{\\"password\\": [REDACTED]}}'),
    ("Login(user='bob', password='a\\'{}')", "Login(user='bob', password=[REDACTED])"),
    ("mysql --password {} --user bob", "mysql --password [REDACTED] --user bob"),
    ("mysql --password={} --user bob", "mysql --password=[REDACTED] --user bob"),
    ("mysql --db.pass {} --user bob", "mysql --db.pass [REDACTED] --user bob"),
    ("['mysql', '--password', '{}']", "['mysql', '--password', [REDACTED]]"),
    ("cmd=--password={}", "cmd=--password=[REDACTED]"),
    ("Authorization: Basic {}\nHost: x", "Authorization: [REDACTED]\nHost: x"),
    ("Cookie: a={}; b={}\nHost: x", "Cookie: [REDACTED]\nHost: x"),
    ("[(b'authorization', b'Bearer {}')]", "[(b'authorization', [REDACTED])]"),
    ('[["Authorization", "Bearer {}"]]', '[["Authorization", [REDACTED]]]'),
    ("password='never closed {}", "password=[REDACTED]"),
    ('{{"password": ["a", "{}"], "b": 1}}', '{{"password": [REDACTED] "b": 1}}'),
    ("{{'password': {{'a': 1, 'b': '{}'}}}}", "{{'password': [REDACTED]"),
    ("auth=('bob', '{}') failed", "auth=[REDACTED] failed"),
    ("[{{'name': 'PASSWORD', 'value': '{}'}}]", "[{{'name': 'PASSWORD', 'value': [REDACTED]}}]"),
    ('{{"header":"TOKEN","value":"{}","a":1}}', '{{"header":"TOKEN","value":[REDACTED],"a":1}}'),
    ('token="password="{}"', "token=[REDACTED]"),
)


@pytest.mark.rule("LOG-27", "LOG-34", "LOG-35", "LOG-36")
@pytest.mark.parametrize(("text", "expected"), TEXTS)
def test_secret_in_text_is_replaced(text: str, expected: str) -> None:
    text, expected = text.replace("{}", SECRET), expected
    for doubled in ("{{", "}}"):
        text, expected = text.replace(doubled, doubled[0]), expected.replace(doubled, doubled[0])
    assert mask_secrets(text, redactor.is_secret) == expected
    assert redactor.redact([text]) == [expected]
    assert SECRET.encode() not in logged({"a": text})
    assert SECRET.encode() not in logged({}, text)
    assert SECRET.encode() not in logged({"a": [text.encode()]})
    assert SECRET.encode() not in logged({text: 1})


@pytest.mark.rule("LOG-27")
@pytest.mark.parametrize(
    "text",
    [
        *("http://localhost:8080/mcp", "http://bob@example.com:80/a:b@c"),
        *("the token has expired", "at 10:30:00 the session ended", "a=b, c: d --user bob"),
        *("run --token --user bob", "key", "keyboard=x spinner: y --compass z", "('a', 'b')", ""),
    ],
)
def test_text_without_secret_stays_same_object(text: str) -> None:
    assert mask_secrets(text, redactor.is_secret) is text
    assert redactor.redact(text) is text


@pytest.mark.rule("LOG-36")
def test_exceptions_and_tracebacks_are_searched() -> None:
    try:
        raise ConnectionError(f"cannot reach postgres://bob:{SECRET}@db")
    except ConnectionError as error:
        for value in (
            error,
            describe_exception(error),
            traceback.format_exc(),
        ):
            line = logged({"error": value})
            assert SECRET.encode() not in line
            assert b"postgres://bob:[REDACTED]@db" in line


@pytest.mark.rule("LOG-12", "LOG-36")
def test_text_is_searched_before_truncation() -> None:
    text = "x" * 1010 + f" postgres://bob:{SECRET * 1000}@db"
    value = orjson.loads(logged({"a": text}))["a"]
    assert "hunter" not in value
    assert value.endswith(f"[cut at 1024 of {len(text)} characters]")
    assert b"hunter" not in logged({"a": b"x" * 240 + f"a://b:{SECRET * 100}@c".encode()})


@pytest.mark.rule("LOG-28", "LOG-37")
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([["Authorization", SECRET], ["Host", "a"]], [["Authorization", REDACTED], ["Host", "a"]]),
        ([(b"authorization", SECRET.encode())], [(b"authorization", REDACTED)]),
        (["run", "--password", SECRET, "--x"], ["run", "--password", REDACTED, "--x"]),
        (["run", "--password", "--x", "y"], ["run", "--password", "--x", "y"]),
        ({"name": "PASSWORD", "value": SECRET}, {"name": "PASSWORD", "value": REDACTED}),
        ([{"value": [SECRET], "key": "pin"}], [{"value": REDACTED, "key": REDACTED}]),
        ({"name": "colour", "value": "red"}, {"name": "colour", "value": "red"}),
        (["a token", "b"], ["a token", "b"]),
        (["token", "b", "c"], ["token", "b", "c"]),
    ],
)
def test_value_named_by_another_member_is_replaced(value: Any, expected: Any) -> None:
    assert redactor.redact(value) == expected
    assert SECRET.encode() not in logged({"a": value})


@pytest.mark.rule("LOG-37")
def test_fields_of_record_name_each_other() -> None:
    logger = StructuredLogger(sink := MemorySink(), ManualClock())
    logger.info("m", {"name": "colour", "value": "red"})
    logger.info("m", {"name": "PASSWORD", "value": SECRET})
    assert [line["value"] for line in sink.lines] == ["red", REDACTED]


@pytest.mark.rule("LOG-36")
def test_fields_after_known_message_are_searched() -> None:
    logger = StructuredLogger(sink := MemorySink(), ManualClock())
    for value in (
        *("plain", "plain", "Bearer x", "--pin x", "pin: x", "pin=x", "{'pin':'x'}", "two words"),
    ):
        logger.info("two words", {"a": value})
    assert [line["a"] for line in sink.lines] == [
        *("plain", "plain", "Bearer [REDACTED]", "--pin [REDACTED]", "pin: [REDACTED]"),
        *("pin=[REDACTED]", "{'pin':[REDACTED]}", "two words"),
    ]


# -- a secret is planted anywhere ----------------------------------------------------------------

secrets = st.text(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", max_size=20
).map("S3CRET".__add__)
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
plain = st.none() | st.booleans() | st.integers() | words
keys = st.sampled_from(KEYS)
SHAPES: tuple[Callable[[str, str], Any], ...] = (
    lambda key, secret: {key: secret},
    lambda key, secret: {key: [{"deep": (secret,)}]},
    lambda key, secret: [key, secret],
    lambda key, secret: [["a", "b"], (key.encode(), secret.encode())],
    lambda key, secret: ["run", f"--{key}", secret],
    lambda key, secret: {"name": key, "value": secret},
    lambda key, secret: {"default": {"a": secret}, "header": key},
    lambda key, secret: f"{key}={secret}",
    lambda key, secret: f"{key}='{secret}'",
    lambda key, secret: f"{key}: {secret}",
    lambda key, secret: f"--{key} {secret}",
    lambda key, secret: repr({key: secret}),
    lambda key, secret: orjson.dumps({key: [secret]}).decode(),
    lambda key, secret: repr([(key, secret)]),
    lambda key, secret: f"https://{key}:{secret}@example.com/",
    lambda key, secret: f"Bearer {secret}",
    lambda key, secret: ValueError(f"{key}={secret}"),
    lambda key, secret: f"{key}={secret}".encode(),
    lambda key, secret: {f"{key}={secret}": 1},
)


@st.composite
def planted(draw: st.DrawFn) -> tuple[str, Any]:
    """Return a secret, and a value with it somewhere inside."""
    secret = draw(secrets)
    value = draw(st.sampled_from(SHAPES))(draw(keys), secret)
    if isinstance(value, str):
        value = f"{draw(words)} {value} {draw(words)}"
    for _ in range(draw(st.integers(0, 5))):
        around = draw(st.integers(0, 3))
        if around == 0:
            value = {draw(words): draw(plain), f"{draw(words)} ": value}
        elif around == 1:
            value = [draw(plain), draw(plain), value]
        elif around == 2:
            value = (value,)
        else:
            value = {"a": value, "b": draw(plain)}
    return secret, value


@pytest.mark.rule("LOG-06", "LOG-27", "LOG-34", "LOG-28", "LOG-37")
@given(planted())
def test_planted_secret_never_appears(case: tuple[str, Any]) -> None:
    secret, value = case
    assert secret.encode() not in logged({"field": value})
    assert secret not in str(redactor.for_log(value))


@pytest.mark.rule("LOG-36")
@given(st.text(max_size=60))
def test_searching_any_text_adds_only_markers(text: str) -> None:
    left = mask_secrets(text, redactor.is_secret)
    for part in left.split(REDACTED):
        assert part in text


# -- hostile texts -------------------------------------------------------------------------------

SIZE = 1 << 16  # what takes quadratic time with it hangs
HOSTILE = (
    *("a=", "pin=", "pin= ", "a", "'", "\\", "\\'", '\\"', "://", "://a:", "://a:@", "@", "--a "),
    *("-", ".-", " ", "a        ", "'a',", "Bearer ", "authorization:", "authorization:\n", "a_"),
    *("aB", "'='", "token='", 'token="', "\\'a", ": ", "=", "pin", "cookie=", "b'pin', b'", "1a"),
    *("pin=[", "pin={", "pin=(", "[", "'pin', 'value': ", "'pin', 'value'"),
)


@pytest.mark.rule("LOG-36")
@pytest.mark.parametrize("piece", HOSTILE)
@pytest.mark.parametrize("before", ["", "pin='", "cookie: "])
def test_hostile_text_is_searched_completely(piece: str, before: str) -> None:
    text = before + piece * (SIZE // len(piece))
    mask_secrets(text, redactor.is_secret)
    assert len(logged({"a": text})) < 10_000
