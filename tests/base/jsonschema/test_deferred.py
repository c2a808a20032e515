"""When the code of a validator is generated."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from foundation_rt.base.jsonschema.compilation import MAX_DEFERRED, Validator, compile_schema
from foundation_rt.base.jsonschema.issues import TOO_DEEP
from tests.lab.clock.counting import generations


def schema_of(properties: int) -> dict[str, Any]:
    """Return a schema of so many schemas besides its root."""
    names = [f"p{number}" for number in range(properties)]
    return {"type": "object", "properties": {name: {"type": "integer"} for name in names}}


@pytest.mark.rule("REG-18")
def test_code_is_generated_once_and_with_the_first_value() -> None:
    with generations() as noted:
        validate = compile_schema(schema_of(MAX_DEFERRED - 1)).validate
        assert noted == []
        for _ in range(3):
            assert validate({"p0": 1}) == ()
            assert [issue.path for issue in validate({"p0": "x"})] == ["/p0"]
        assert len(noted) == 1


@pytest.mark.rule("REG-18")
def test_code_of_a_large_schema_is_generated_at_registration() -> None:
    with generations() as noted:
        validate = compile_schema(schema_of(MAX_DEFERRED)).validate
        assert len(noted) == 1
        assert validate({"p0": 1}) == ()
        assert len(noted) == 1


def at_once(validate: Validator, values: list[Any]) -> list[bool]:
    """Return which of the values are valid; each is checked in a thread of its own."""
    together = threading.Barrier(len(values))

    def check(value: Any) -> bool:
        together.wait()
        return validate(value) == ()

    with ThreadPoolExecutor(len(values)) as threads:
        return [*threads.map(check, values)]


@pytest.mark.rule("REG-18", "SCHEMA-17")
def test_first_values_may_come_in_several_threads() -> None:
    """One that counts its steps: the counter has to be there as soon as the code is."""
    schema = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            validate = compile_schema(schema).validate
            values = [{"a": [[1], [2]]}, {"a": [[1], [1.0]]}] * 4
            assert at_once(validate, values) == [True, False] * 4
    finally:
        sys.setswitchinterval(interval)


@pytest.mark.rule("SCHEMA-17", "SCHEMA-18")
def test_first_value_without_stack_left_is_an_issue_and_later_ones_are_checked() -> None:
    validate = compile_schema(schema_of(3)).validate

    def descend() -> Any:
        try:
            return descend()
        except RecursionError:
            return validate({"p0": "x"})

    assert descend() == TOO_DEEP
    assert validate({"p0": 1}) == ()
    assert [issue.path for issue in validate({"p0": "x"})] == ["/p0"]
