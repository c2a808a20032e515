"""What can be set of a client, by its program and by the environment."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foundation_rt.client.options import (
    REVISION_VARIABLE,
    TTL_VARIABLE,
    ClientOptions,
    from_environment,
)
from foundation_rt.errors import ConfigError
from foundation_rt.protocol.revisions import REVISIONS
from foundation_rt.version import __version__


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(REVISION_VARIABLE, raising=False)
    monkeypatch.delenv(TTL_VARIABLE, raising=False)


def test_by_default_nothing_is_named_and_tools_are_kept_for_five_minutes() -> None:
    options = from_environment({})
    assert options.require is None
    assert options.tool_cache_ttl_ms == 5 * 60 * 1000
    assert options.forced is None
    assert options.info == {"name": "foundation-rt", "version": __version__}


def test_given_options_are_used() -> None:
    given = {"name": "n", "version": "2", "title": "t", "require": ["a", "b.c"], "timeout": 1}
    options = from_environment(given)
    assert options.info == {"name": "n", "version": "2", "title": "t"}
    assert options.require == {"a", "b.c"}
    assert options.timeout == 1
    assert ClientOptions(require=()).require == frozenset()
    with pytest.raises(TypeError, match="'tiemout'"):
        from_environment({"tiemout": 5})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("timeout", 0),
        ("timeout", -1),
        ("timeout", math.nan),
        ("timeout", "5"),
        ("timeout", None),
        ("timeout", True),
        ("connect_timeout", 0),
        ("probe_timeout", 0),
        ("handler_timeout", -0.5),
        ("tool_timeouts", {"a": 1, "b": 0}),
        ("tool_timeouts", {"a": "1"}),
        ("tool_cache_ttl_ms", 0),
        ("tool_cache_ttl_ms", 1.5),
        ("max_pages", 0),
        ("max_pages", 1.5),
        ("max_pages", "many"),
        ("max_pages", math.inf),
        ("revision", "2099-01-01"),
        ("revision", ["a"]),
        ("log_level", "loud"),
        ("log_level", 5),
        ("require", "tools"),
        ("require", ["tools", 5]),
        ("require", 5),
    ],
    ids=repr,
)
def test_invalid_option_is_named(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        from_environment({name: value})


# -- the environment


@pytest.mark.rule("CLIENT-05")
@pytest.mark.parametrize("name", REVISIONS)
def test_the_environment_forces_a_revision_whatever_the_program_says(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REVISION_VARIABLE, name)
    for said in (None, *REVISIONS):
        assert from_environment({"revision": said}).forced is REVISIONS[name]


@pytest.mark.rule("CLIENT-05")
@pytest.mark.parametrize(
    ("text", "ms"), [("1", 1), ("1000", 1000), ("007", 7), ("999999999999", 999_999_999_999)]
)
def test_the_environment_says_how_long_tools_are_kept(
    text: str, ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TTL_VARIABLE, text)
    assert from_environment({}).tool_cache_ttl_ms == ms
    assert from_environment({"tool_cache_ttl_ms": 5}).tool_cache_ttl_ms == ms


@pytest.mark.rule("CLIENT-05")
def test_a_variable_that_is_empty_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REVISION_VARIABLE, "")
    monkeypatch.setenv(TTL_VARIABLE, "")
    oldest = next(iter(REVISIONS))
    options = from_environment({"revision": oldest, "tool_cache_ttl_ms": 5})
    assert (options.revision, options.tool_cache_ttl_ms) == (oldest, 5)


@pytest.mark.rule("CLIENT-05")
@pytest.mark.parametrize("variable", [REVISION_VARIABLE, TTL_VARIABLE])
@pytest.mark.parametrize(
    "text",
    ["0", "00", "-1", "1.5", "1e3", " 5", "5 ", "5\n", "٥", "²", "newest", "9" * 13, "9" * 5000],
    ids=lambda text: repr(text[:20]),
)
def test_a_variable_that_cannot_be_used_is_named(
    variable: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, text)
    with pytest.raises(ConfigError, match=variable):
        from_environment({})


@pytest.mark.rule("CLIENT-05")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=15))
def test_any_text_is_a_number_of_ms_or_is_refused(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TTL_VARIABLE, text)
    try:
        kept = from_environment({}).tool_cache_ttl_ms
    except ConfigError as error:
        assert TTL_VARIABLE in str(error)
    else:
        assert kept == (int(text) if text else 300_000)
        assert kept > 0
