"""The registry of resources: its checks, look-ups, and lists for each revision."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
import pytest

from foundation_rt.errors import RegistrationError
from foundation_rt.features.resources.registry import (
    RegisteredTemplate,
    ResourceDefinition,
    ResourceRegistry,
    ResourceTemplateDefinition,
)
from foundation_rt.features.resources.uri_template import normalize_uri
from foundation_rt.kernel.registry.tools import ExecutionMode
from foundation_rt.protocol.content import Annotations, Icon
from foundation_rt.protocol.revisions import REVISIONS
from tests.lab.servers.core import ListObserver


def read(arguments: dict[str, Any], context: Any) -> str:
    return "text"


async def read_later(arguments: dict[str, Any], context: Any) -> str:
    return "text"


def resource(uri: Any = "task://all", **members: Any) -> ResourceDefinition:
    return ResourceDefinition(**{"uri": uri, "name": "all", **members})


def template(uri: Any = "task://{id}", **members: Any) -> ResourceTemplateDefinition:
    return ResourceTemplateDefinition(**{"uri_template": uri, "name": "one", **members})


# -- registration


@pytest.mark.rule("MRES-15")
@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ({"uri": "all"}, "'all' is refused: uri must begin with a scheme"),
        ({"uri": 5}, "uri must be str, not int"),
        ({"uri": None}, "uri must be str, not NoneType"),
        ({"uri": "a b:c"}, "uri must"),
        ({"name": ""}, "name must be a string of 1 to 256"),
        ({"name": "x" * 257}, "name must be a string of 1 to 256"),
        ({"name": 5}, "name must be a string of 1 to 256"),
        ({"name": " a"}, "name must be printable"),
        ({"name": "a\n"}, "name must be printable"),
        ({"title": 5}, "title must be a string of valid Unicode"),
        ({"description": "\ud800"}, "description must be a string of valid Unicode"),
        ({"mime_type": b"x"}, "mime_type must be a string"),
        ({"size": -1}, "size must be a whole number from 0 to 9007199254740991, not -1"),
        ({"size": True}, "size must be a whole number"),
        ({"size": 2**53}, "size must be a whole number"),
        ({"annotations": {"priority": 1}}, "annotations must be Annotations, not dict"),
        ({"icons": ["x"]}, "icons must be a sequence of Icon"),
        ({"icons": 5}, "icons must be a sequence of Icon"),
        ({"meta": [1]}, "meta must be a mapping"),
        ({"meta": {"a": object()}}, "meta must be JSON"),
        ({"meta": {1: 2}}, "meta must be JSON"),
    ],
)
def test_a_definition_that_is_not_valid_is_refused(members: dict[str, Any], problem: str) -> None:
    registry = ResourceRegistry()
    observer = ListObserver()
    registry.observe(observer)
    with pytest.raises(RegistrationError, match=problem):
        registry.register(resource(**members), read)
    assert not registry.is_offered
    assert observer.notified == []


@pytest.mark.rule("MRES-15", "MRES-11")
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"timeout_ms": 0}, "timeout_ms must be a whole number from 1 to 2147483647"),
        ({"timeout_ms": 1.5}, "timeout_ms"),
        ({"cache_ttl_ms": -1}, "cache_ttl_ms must be a whole number from 0"),
        ({"handler": "x"}, "the handler is not callable"),
        ({"handler": read_later, "inline": True}, "inline=True is for def"),
    ],
)
def test_handler_with_wrong_options_is_refused(options: dict[str, Any], problem: str) -> None:
    given = {"handler": read, **options}
    registry = ResourceRegistry()
    with pytest.raises(RegistrationError, match=problem):
        registry.register(resource(), **given)
    with pytest.raises(RegistrationError, match=problem):
        registry.register_template(template(), **given)
    assert not registry.is_offered


@pytest.mark.rule("MRES-06", "MRES-15")
@pytest.mark.parametrize(
    ("uri", "problem"),
    [
        ("task://all", "uri_template must have a variable"),
        ("task://{#id}", "a name is letters"),
        ("task://{uri}", "no variable may be called 'uri'"),
        (5, "uri_template must be str, not int"),
        (None, "uri_template must be str, not NoneType"),
    ],
)
def test_invalid_template_is_refused(uri: Any, problem: str) -> None:
    with pytest.raises(RegistrationError, match=problem):
        ResourceRegistry().register_template(template(uri), read)


@pytest.mark.rule("MRES-15", "MRES-08")
def test_taken_uri_is_refused_and_its_resource_stays() -> None:
    registry = ResourceRegistry()
    first = registry.register(resource(), read)
    one = registry.register_template(template(), read)
    with pytest.raises(RegistrationError, match="the URI is taken: choose another one, or"):
        registry.register(resource(name="other"), read)
    for same in ("task://{id}", "task://{other}"):
        with pytest.raises(RegistrationError, match=r"'task://\{id\}' makes the same URIs"):
            registry.register_template(template(same), read)
    assert registry.find("task://all", None) == (first, {})
    assert registry.find("task://1", None) == (one, {"id": "1"})
    assert registry.unregister("task://{id}")
    registry.register_template(template("task://{other}"), read)
    assert registry.find("task://1", None)[1] == {"other": "1"}


def test_handler_runs_as_task_in_thread_or_inline() -> None:
    registry = ResourceRegistry()
    assert registry.register(resource(), read).handler_spec.execution is ExecutionMode.THREAD
    later = registry.register_template(template(), read_later)
    assert later.handler_spec.execution is ExecutionMode.ASYNC
    inline = registry.register(resource("a:b"), read, inline=True)
    assert inline.handler_spec.execution is ExecutionMode.INLINE


def test_meta_is_a_private_copy() -> None:
    meta = {"a": [1]}
    registry = ResourceRegistry()
    entry = registry.register(resource(meta=meta), read)
    meta["a"].append(2)
    assert entry.definition.meta == {"a": [1]}


# -- look-ups


@pytest.mark.rule("MRES-08")
def test_most_literal_template_is_found_first() -> None:
    registry = ResourceRegistry()
    for uri in ("a:{x}", "a:{x}/{y}", "a:b/{y}", "a:{x}/c", "a:b{x}"):
        registry.register_template(template(uri), read)
    fixed = registry.register(resource("a:b/d"), read)

    def found(uri: str) -> str:
        entry, _ = registry.find(uri, None)
        assert isinstance(entry, RegisteredTemplate)
        return entry.template.text

    assert registry.find("a:b/d", None) == (fixed, {})
    assert found("a:q") == "a:{x}"
    assert found("a:bq") == "a:b{x}"
    assert found("a:q/q") == "a:{x}/{y}"
    assert found("a:b/q") == "a:b/{y}"
    assert found("a:q/c") == "a:{x}/c"
    assert found("a:b/c") == "a:b/{y}"  # as much literal text: the one that sorts first
    registry.unregister("a:b/d")
    assert found("a:b/d") == "a:b/{y}"
    registry.unregister("a:b/{y}")
    assert found("a:b/d") == "a:{x}/{y}"


@pytest.mark.rule("MRES-08", "MRES-09")
def test_unknown_uri_is_not_found() -> None:
    registry = ResourceRegistry()
    registry.register_template(template("file:///{name}"), read)
    for uri in ("", "other:1", "file:///", "file:///..", "file:///%2e%2e", "file:///%2Fb"):
        with pytest.raises(LookupError):
            registry.find(uri, None)


@pytest.mark.rule("MRES-26")
@pytest.mark.parametrize(
    ("listed", "asked"),
    [
        ("file:///tmp/Ä.txt", "file:///tmp/%C3%84.txt"),
        ("file:///tmp/%c3%84.txt", "file:///tmp/Ä.txt"),
        ("file:///tmp/a~b", "FILE:///tmp/%61%7eb"),
        ("https://user@Example.com/A", "https://user@example.COM/A"),
    ],
)
def test_resource_is_found_by_equivalent_uris(listed: str, asked: str) -> None:
    registry = ResourceRegistry()
    entry = registry.register(resource(listed), read)
    assert registry.find(asked, None) == (entry, {})
    exact = registry.register(resource(asked), read)
    assert registry.find(asked, None) == (exact, {})
    registry.unregister(asked)
    registry.unregister(listed)
    with pytest.raises(LookupError):
        registry.find(asked, None)


@pytest.mark.rule("MRES-26")
@pytest.mark.parametrize(
    "other", ["https://User@e.com/A", "https://user@e.com/a", "https://user@e.com/%2541", "urn:A"]
)
def test_other_uris_are_not_equivalent(other: str) -> None:
    assert normalize_uri(other) not in map(normalize_uri, ("https://user@e.com/A", "urn:a"))


@pytest.mark.rule("MRES-12")
def test_observers_are_notified_of_changes_and_not_of_refusals() -> None:
    registry = ResourceRegistry()
    observer = ListObserver()
    registry.observe(observer)
    registry.register(resource(), read)
    registry.register_template(template(), read)
    assert registry.unregister("task://all")
    assert not registry.unregister("task://all")
    assert registry.unregister("task://{id}")
    assert observer.notified == ["resources"] * 4
    assert registry.resources.entries() == registry.templates.entries() == ()


# -- lists

FULL = {
    "name": "all",
    "title": "All tasks",
    "description": "Every one.",
    "mimeType": "text/plain",
    "size": 5,
    "annotations": {"audience": ["user"], "priority": 0.5},
    "icons": [{"src": "https://example.com/i.png"}],
    "_meta": {"a": 1},
}


@pytest.mark.rule("MRES-02", "MRES-03")
@pytest.mark.parametrize("revision", REVISIONS.values(), ids=REVISIONS)
def test_each_revision_gets_only_its_members(revision: Any) -> None:
    members: dict[str, Any] = {
        "title": "All tasks",
        "description": "Every one.",
        "mime_type": "text/plain",
        "annotations": Annotations(audience=("user",), priority=0.5),
        "icons": [Icon("https://example.com/i.png")],
        "meta": {"a": 1},
    }
    registry = ResourceRegistry()
    registry.register(resource(size=5, **members), read)
    registry.register(resource("a:bare"), read)
    registry.register_template(template(name="all", **members), read)
    expected = revision.keep("resource", FULL)
    [bare, full] = orjson.loads(orjson.dumps(registry.resources.page(None, 5, revision)[0]))
    assert bare == {"uri": "a:bare", "name": "all"}
    assert full == {"uri": "task://all", **expected}
    [shown] = orjson.loads(orjson.dumps(registry.templates.page(None, 5, revision)[0]))
    del expected["size"]
    assert shown == {"uriTemplate": "task://{id}", **expected}


@pytest.mark.rule("MRES-12")
def test_finding_while_templates_come_and_go() -> None:
    registry = ResourceRegistry()
    registry.register_template(template("a:{x}"), read)

    def change(number: int) -> None:
        for turn in range(50):
            uri = f"a:b{number}/{turn}/{{x}}"
            entry = registry.register_template(template(uri), read)
            assert registry.find(f"a:b{number}/{turn}/y", None) == (entry, {"x": "y"})
            assert registry.find("a:y", None)[1] == {"x": "y"}
            assert registry.unregister(uri)
            with pytest.raises(LookupError):
                registry.find(f"a:b{number}/{turn}/y", None)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(change, range(4)))
    assert len(registry.templates.entries()) == 1
