"""Redaction of secrets, sanitizing of texts, and bounds of log lines."""

from __future__ import annotations

import copy
import math
import sys
from collections import OrderedDict, UserDict, deque, namedtuple
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from types import MappingProxyType
from typing import Any, ClassVar
from uuid import UUID

import attrs
import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from foundation_rt.base.logs.redaction import DEFAULT_REDACT_KEYS, REDACTED, Redactor
from foundation_rt.base.logs.traversal import (
    CIRCULAR,
    TOO_DEEP,
    TRUNCATED,
    UNREADABLE,
    sanitize,
)
from foundation_rt.errors import ErrorCode, RegistrationError, ToolError, UsageError

redactor = Redactor()


@attrs.define
class Login:
    user: str
    password: str


@attrs.define
class Quiet:
    user: str
    pin: str = attrs.field(repr=False)
    code: str = attrs.field(default="4711", repr=lambda _: "***")


@dataclass
class Account:
    name: str
    api_key: str
    shared: ClassVar[int] = 3


@dataclass
class QuietAccount:
    name: str
    pin: str = dataclass_field(repr=False)


Credentials = namedtuple("Credentials", ["user", "token"])


class Colour(Enum):
    RED = "red"
    LIST = ("a\n", "b")


class Name(StrEnum):
    A = "a"


class Number(IntEnum):
    ONE = 1


class Permission(Flag):
    READ = 1
    WRITE = 2


# -- keys ----------------------------------------------------------------------------------------


@pytest.mark.rule("LOG-31")
@pytest.mark.parametrize("name", DEFAULT_REDACT_KEYS)
@pytest.mark.parametrize(
    "spelling", [str, str.upper, str.lower, str.capitalize, lambda name: f"my_{name}-2"]
)
def test_every_name_is_secret_in_every_case(name: str, spelling: Callable[[str], str]) -> None:
    assert redactor.is_secret(spelling(name))


@pytest.mark.rule("LOG-07")
@pytest.mark.rule("LOG-32")
@pytest.mark.parametrize(
    "key",
    [
        *("accessToken", "access_token", "API_KEY", "apikey", "apikeys", "ApiKeys", "APIKey"),
        *("x-api-key", "X-Api-Key", "sessionId", "SESSIONID_session", "tokens", "passwords"),
        *("cookies", "token2", "oauth2token", "2keys", "SECRETtoken", "HTTPAuthorization"),
        *("user.password", "the key to it", "to\u200bken", "pass_word", "client\nsecret"),
        *("ſecret", "größeToken", "ключ_token"),
    ],
)
def test_secret_keys(key: str) -> None:
    assert redactor.is_secret(key)
    assert redactor.is_secret(key)  # as remembered


@pytest.mark.rule("LOG-07")
@pytest.mark.rule("LOG-32")
@pytest.mark.parametrize(
    "key",
    [
        *("", "_", "keyboard", "monkey", "Monkeys", "tokenize", "tokenizer", "secretary"),
        *("passwordless", "authorizationless", "obsession", "sessionless", "bearery"),
        *("correlationId", "connectionCorrelationId", "runId", "toolName", "durationMs"),
        *("errorCode", "payloadBytes", "keyss", "s"),
    ],
)
def test_harmless_keys(key: str) -> None:
    assert not redactor.is_secret(key)


@pytest.mark.rule("LOG-31")
def test_configured_names_are_added_and_match_by_words_too() -> None:
    custom = Redactor(["creditCard", "PIN", "oauth2"])
    for key in ("credit_card", "creditcard", "CREDIT-CARD-NUMBER", "creditCards", "userPin", "pin"):
        assert custom.is_secret(key)
    for key in ("oauth2", "oauth_2", "OAuth2Scope"):
        assert custom.is_secret(key)
    assert custom.is_secret("token")
    for key in ("credit", "card", "cardCredit", "spin", "opinion", "oauth", "--", ""):
        assert not custom.is_secret(key)


@pytest.mark.rule("LOG-29")
@pytest.mark.parametrize("key", ["--", "", " ", "*"])
def test_configured_name_that_matches_no_key_is_refused(key: str) -> None:
    with pytest.raises(UsageError, match="letter or digit"):
        Redactor(["iban", key])


@pytest.mark.rule("LOG-33")
def test_too_long_key_is_secret() -> None:
    assert not redactor.is_secret("a" * 256)
    assert redactor.is_secret("a" * 257)


@pytest.mark.rule("LOG-33")
def test_remembered_keys_are_bounded() -> None:
    own = Redactor()
    for number in range(10_000):
        assert not own.is_secret(f"field{number}")
        assert own.is_secret(f"token{number}")
    assert len(own._verdicts) <= 4096


@pytest.mark.rule("LOG-32")
@given(st.text(max_size=40))
def test_secret_word_is_found_between_any_others(text: str) -> None:
    assert redactor.is_secret(f"{text}_token")
    assert redactor.is_secret(f"token {text}")


# -- redaction -----------------------------------------------------------------------------------


@pytest.mark.rule("LOG-06")
def test_any_value_under_secret_key_is_replaced() -> None:
    for value in ("x", 1, None, "", [], {"a": 1}, object()):
        assert redactor.redact({"token": value, "a": 1}) == {"token": REDACTED, "a": 1}


@pytest.mark.rule("LOG-06", "LOG-08")
def test_redaction_reaches_into_everything_that_has_keys() -> None:
    value = {
        "list": [{"key": 1}],
        "tuple": ({"key": 1}, 2),
        "set": {Credentials("ann", "x")},
        "deque": deque([{"key": 1}]),
        "mapping": MappingProxyType({"a": {"Cookie": 1}}),
        "user dict": UserDict({"secret": 1}),
        "attrs": Login("ann", "x"),
        "dataclass": Account("ann", "x"),
        "named tuple": Credentials("ann", "x"),
        b"token": b"x",
        ("api", "key"): 2,
        7: {"bearer": 1},
    }
    assert redactor.redact(value) == {
        "list": [{"key": REDACTED}],
        "tuple": ({"key": REDACTED}, 2),
        "set": [{"user": "ann", "token": REDACTED}],
        "deque": [{"key": REDACTED}],
        "mapping": {"a": {"Cookie": REDACTED}},
        "user dict": {"secret": REDACTED},
        "attrs": {"user": "ann", "password": REDACTED},
        "dataclass": {"name": "ann", "api_key": REDACTED},
        "named tuple": {"user": "ann", "token": REDACTED},
        b"token": REDACTED,
        ("api", "key"): REDACTED,
        7: {"bearer": REDACTED},
    }


@pytest.mark.rule("LOG-08")
@pytest.mark.parametrize(
    "value",
    [
        None,
        1,
        2**70,
        "token",
        "a\nb",
        math.inf,
        b"token",
        Colour.RED,
        Permission.READ | Permission.WRITE,
        {"a": [1, (2, {"b": None})]},
        OrderedDict(a=1),
        Number.ONE,
        attrs.make_class("Plain", ["a"])(1),
        ValueError("x"),
        UUID(int=7),
        object,
        Login,
        print,
    ],
)
def test_value_without_secret_is_returned_as_same_object(value: Any) -> None:
    assert redactor.redact(value) is value


@pytest.mark.rule("LOG-08")
def test_only_path_to_secret_is_copied() -> None:
    untouched = {"a": [1]}
    value = {"untouched": untouched, "list": [untouched, {"key": 1}]}
    result = redactor.redact(value)
    assert value["list"][1] == {"key": 1}
    assert result["untouched"] is untouched
    assert result["list"][0] is untouched


@pytest.mark.rule("LOG-09")
def test_container_inside_itself() -> None:
    inner: list[Any] = [1]
    value: dict[str, Any] = {"inner": inner, "again": inner}
    inner.append(value)
    assert redactor.redact(value) == {"inner": [1, CIRCULAR], "again": [1, CIRCULAR]}
    assert redactor.for_log(value) == {"inner": [1, CIRCULAR], "again": [1, CIRCULAR]}


def nested(levels: int, innermost: Any = 1) -> Any:
    value = innermost
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.rule("LOG-09")
@pytest.mark.parametrize("walk", [redactor.redact, redactor.for_log])
def test_depth_of_nesting_is_bounded(walk: Callable[[Any], Any]) -> None:
    assert walk(nested(64)) == nested(64)
    assert walk(nested(65)) == nested(64, TOO_DEEP)
    assert walk(nested(100_000)) == nested(64, TOO_DEEP)
    assert walk({"a": nested(64)}) == {"a": nested(63, TOO_DEEP)}


@pytest.mark.rule("LOG-09", "LOG-15")
def test_caller_deep_in_stack_gets_result() -> None:
    def descend(levels: int) -> Any:
        return redactor.for_log(nested(60)) if levels == 0 else descend(levels - 1)

    frame, used = sys._getframe(), 0
    while frame is not None:
        frame, used = frame.f_back, used + 1  # type: ignore[assignment]
    answer = descend(sys.getrecursionlimit() - used - 40)
    while isinstance(answer, list):
        answer = answer[0]
    assert answer == UNREADABLE


@pytest.mark.rule("LOG-10")
def test_log_line_has_at_most_a_thousand_values() -> None:
    assert redactor.for_log(list(range(1000))) == list(range(1000))
    assert redactor.for_log(range(10**12)) == [*range(1000), TRUNCATED]
    many = redactor.for_log({str(number): number for number in range(1001)})
    assert len(many) == 1001
    assert many[TRUNCATED] == TRUNCATED
    assert "1000" not in many


@pytest.mark.rule("LOG-10")
def test_exponential_structure_is_bounded() -> None:
    bomb: Any = 1
    for _ in range(60):
        bomb = [bomb, bomb]
    assert len(orjson.dumps(redactor.for_log(bomb))) < 100_000


@pytest.mark.rule("LOG-10")
def test_redaction_stops_after_a_million_values() -> None:
    result = redactor.redact({"many": range(10**12), "token": 1})
    assert len(result["many"]) == 1_000_000
    assert result["many"][-1] == TRUNCATED
    assert "token" not in result


# -- sanitization --------------------------------------------------------------------------------


def is_escaped_away(char: str) -> bool:
    code = ord(char)
    return code < 0x20 or 0x7F <= code < 0xA0 or code in (0x2028, 0x2029) or 0xD800 <= code < 0xE000


@pytest.mark.rule("LOG-11")
def test_each_character_is_escaped_or_kept() -> None:
    for code in range(sys.maxunicode + 1):
        char = chr(code)
        expected = f"\\u{code:04x}" if is_escaped_away(char) else char
        assert sanitize(char) == expected


@pytest.mark.rule("LOG-11", "LOG-12")
@given(st.text(st.characters(), max_size=1024))
@example("a\ud800\u2028\x85b")
def test_sanitizing_escapes_each_character_and_is_idempotent(text: str) -> None:
    clean = sanitize(text)
    expected = (f"\\u{ord(char):04x}" if is_escaped_away(char) else char for char in text)
    assert clean == "".join(expected)
    assert len(clean) > 1024 or sanitize(clean) == clean
    clean.encode()


@pytest.mark.rule("LOG-12")
def test_long_text_is_truncated_with_marker() -> None:
    assert sanitize("a" * 1024) == "a" * 1024
    assert sanitize("a" * 1025) == "a" * 1024 + " [cut at 1024 of 1025 characters]"
    assert sanitize("\n" * 1024) == "\\u000a" * 1024
    assert sanitize("\n" * 5000) == "\\u000a" * 1024 + " [cut at 1024 of 5000 characters]"


# -- values --------------------------------------------------------------------------------------


class Raises:
    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def __repr__(self) -> str:
        raise self.error("from repr")


class RaisesInText(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class Text(str):
    def __str__(self) -> str:
        return "another"

    def isprintable(self) -> bool:
        return True


class TwoFaced(dict[str, Any]):
    """Shows the world other members than orjson finds inside."""

    def items(self) -> Any:
        return {"a": 1}.items()


class Endless(Mapping[str, int]):
    def __getitem__(self, key: str) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        number = 0
        while True:
            number += 1
            yield str(number)

    def __len__(self) -> int:
        return 1


class Broken(Mapping[str, int]):
    def __getitem__(self, key: str) -> int:
        raise KeyboardInterrupt

    def __iter__(self) -> Iterator[str]:
        return iter("ab")

    def __len__(self) -> int:
        return 2


class FloatSubclass(float):
    pass


@pytest.mark.rule("LOG-11", "LOG-13", "LOG-38", "LOG-14")
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (1.5, 1.5),
        ("a\n", "a\\u000a"),
        (Text("a\n"), "a\\u000a"),
        (2**64 - 1, 2**64 - 1),
        (-(2**63), -(2**63)),
        (2**64, str(2**64)),
        (-(2**63) - 1, str(-(2**63) - 1)),
        (Number.ONE, 1),
        (type("Int", (int,), {})(5), 5),
        (FloatSubclass(0.5), 0.5),
        (Colour.RED, "red"),
        (Colour.LIST, ["a\\u000a", "b"]),
        (Name.A, "a"),
        (Permission.READ | Permission.WRITE, 3),
        (datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=UTC), "2024-01-02T03:04:05.000006+00:00"),
        (date(2024, 1, 2), "2024-01-02"),
        (time(1, 2), "01:02:00"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Decimal("1.5"), "Decimal('1.5')"),
        (b"a\n", repr(b"a\n")),
        (b"\x00" * 255, repr(b"\x00" * 255)),
        (bytearray(b"a" * 300), "b'" + "a" * 255 + "' [cut at 255 of 300 bytes]"),
        ({"a\n": 1, "a\\u000a": 2}, {"a\\u000a": 1, "a\\u000a_": 2}),
        ({1: "a", "1": "b", None: "c"}, {"1": "a", "1_": "b", "None": "c"}),
        ({Text("k"): 1}, {"k": 1}),
        (Login("ann", "x"), {"user": "ann", "password": REDACTED}),
        (Account("ann", "x"), {"name": "ann", "api_key": REDACTED}),
        (Quiet("ann", "1234"), {"user": "ann", "pin": REDACTED, "code": REDACTED}),
        (QuietAccount("ann", "1234"), {"name": "ann", "pin": REDACTED}),
        (Credentials("ann", "x"), {"user": "ann", "token": REDACTED}),
        ({"a": 1}.values(), [1]),
        (frozenset({1}), [1]),
        (ValueError("bad\n"), {"type": "ValueError", "message": "bad\\u000a"}),
        (SystemExit(3), {"type": "SystemExit", "message": "3"}),
        (ToolError("NOT_FOUND", "no"), {"code": "NOT_FOUND", "message": "no"}),
        (RegistrationError("no"), {"code": "INVALID_ARGUMENT", "message": "no"}),
        (Login, "<class '" + Login.__module__ + ".Login'>"),
    ],
)
def test_values_in_log(value: Any, expected: Any) -> None:
    clean = redactor.for_log({"value": value})
    assert clean == {"value": expected}
    assert type(clean["value"]) is type(expected)
    assert orjson.loads(orjson.dumps(clean)) == clean


@pytest.mark.rule("LOG-13")
def test_field_hidden_from_repr_is_redacted_outside_logs() -> None:
    assert redactor.redact(Quiet("ann", "1")) == {"user": "ann", "pin": REDACTED, "code": REDACTED}


@pytest.mark.rule("LOG-38")
def test_only_error_code_is_logged_as_code() -> None:
    error = ValueError("x")
    error.code = 7  # type: ignore[attr-defined]
    assert redactor.for_log(error) == {"type": "ValueError", "message": "x"}
    error.code = ErrorCode.TIMEOUT  # type: ignore[attr-defined]
    assert redactor.for_log(error) == {"code": "TIMEOUT", "message": "x"}


@pytest.mark.rule("LOG-15")
@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, RecursionError])
def test_object_that_raises_is_unreadable(error: type[BaseException]) -> None:
    assert redactor.for_log([Raises(error), 1]) == [UNREADABLE, 1]
    assert redactor.for_log({Raises(error): 1}) == {UNREADABLE: 1}


@pytest.mark.rule("LOG-15")
def test_raising_parts_leave_rest_readable() -> None:
    half_made = Login.__new__(Login)
    value = [RaisesInText("x"), Broken(), half_made, 10**5000, 1]
    assert redactor.for_log(value) == [
        {"type": "RaisesInText", "message": UNREADABLE},
        UNREADABLE,
        UNREADABLE,
        UNREADABLE,
        1,
    ]
    assert redactor.redact([Broken(), half_made, 1]) == [UNREADABLE, UNREADABLE, 1]


@pytest.mark.rule("LOG-06", "LOG-10")
def test_mappings_that_lie_or_never_end() -> None:
    clean = redactor.for_log({"a": TwoFaced(token="x")})
    assert orjson.dumps(clean) == b'{"a":{"a":1}}'
    assert len(redactor.for_log(Endless())) == 1001


# -- any structure (property 9) ------------------------------------------------------------------

SENTINEL = "the value that nobody may see"
secret_keys = st.sampled_from(
    ["token", "API_KEY", "x-api-key", "sessionId", "my\npassword", "Keys"]
)
leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(), max_size=20)
    | st.binary(max_size=10)
    | st.sampled_from([Colour.RED, Number.ONE, Permission.READ, 2**64, "\x00\x7f\x85\u2028\ud800"])
)
keys = st.text(st.characters(), max_size=10) | st.integers() | st.none()
secrets = st.recursive(
    st.just(SENTINEL),
    lambda inner: st.lists(inner, min_size=1) | st.dictionaries(keys, inner, min_size=1),
    max_leaves=4,
)


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(keys, inner, max_size=4)
        | st.tuples(st.dictionaries(keys, inner, max_size=3), secret_keys, secrets).map(
            lambda parts: {**parts[0], parts[1]: parts[2]}
        )
        | st.builds(Login, user=inner, password=secrets)
        | st.builds(Account, name=inner, api_key=secrets)
        | st.builds(Credentials, inner, secrets)
    )


def strings_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, member in value.items():
            yield key
            yield from strings_in(member)
    elif isinstance(value, list):
        for item in value:
            yield from strings_in(item)


structures = st.recursive(leaves, containers, max_leaves=25)


@pytest.mark.rule("LOG-06", "LOG-11")
@given(structures)
def test_log_has_no_secret_and_no_control_character(value: Any) -> None:
    before = copy.deepcopy(value)
    line = orjson.dumps(redactor.for_log(value))
    assert SENTINEL not in line.decode()
    for text in strings_in(orjson.loads(line)):
        assert not any(map(is_escaped_away, text))
    assert value == before


@pytest.mark.rule("LOG-06", "LOG-08")
@given(structures)
def test_redaction_changes_only_secrets(value: Any) -> None:
    before = copy.deepcopy(value)
    result = redactor.redact(value)
    assert value == before
    assert SENTINEL not in repr(result)
    if SENTINEL not in repr(value):
        assert result == value
    assert redactor.redact(result) is result
