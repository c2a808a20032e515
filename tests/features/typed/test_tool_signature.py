"""Tools derived from plain functions: their definitions, and calls of the functions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Optional

import pytest
from attrs import define

from foundation_rt.errors import ErrorCode, RegistrationError, ToolError
from foundation_rt.features.context import ToolContext
from foundation_rt.kernel.registry.tools import ExecutionMode
from tests.lab.apps.signatures import derive_tool

if TYPE_CHECKING:
    from nowhere import Missing

CONTEXT: Any = SimpleNamespace(run_id="run")


def forecast(city: str, days: int = 3, *, unit: str = "C") -> dict[str, Any]:
    """Forecast for a city.

    Looks ahead.

    Args:
        city: Name of the
            city.
        days: How many days ahead.

    Returns:
        The forecast.
    """
    return {"city": city, "days": days, "unit": unit}


# -- derived definitions ---------------------------------------------------------------------


@pytest.mark.rule("TYPED-27", "TYPED-02", "TYPED-03", "TYPED-14")
def test_tool_is_derived_from_its_function() -> None:
    tool = derive_tool(forecast)
    assert tool.name == "forecast"
    assert tool.description == "Forecast for a city.\n\nLooks ahead."
    assert tool.execution is ExecutionMode.THREAD
    assert tool.input_schema == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Name of the city."},
            "days": {"type": "integer", "description": "How many days ahead.", "default": 3},
            "unit": {"type": "string", "default": "C"},
        },
        "required": ["city"],
        "additionalProperties": False,
    }
    assert list(tool.input_schema["properties"]) == ["city", "days", "unit"]
    assert tool.handler({"city": "Oslo", "days": 1}, CONTEXT) == forecast("Oslo", 1)


@pytest.mark.rule("TYPED-01", "TYPED-02")
def test_a_function_without_parameters_takes_an_empty_object() -> None:
    def ping() -> str:
        return "pong"

    tool = derive_tool(ping)
    assert tool.description == ""
    assert tool.input_schema == {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    }
    assert tool.handler({}, CONTEXT) == "pong"


class Station:
    """A weather station."""

    def __init__(self, place: str) -> None:
        self.place = place

    def __call__(self, days: int) -> str:
        """Return the words of the station."""
        return f"{self.place} in {days}"

    def measure(self, what: str) -> str:
        """Measure something."""
        return f"{what} at {self.place}"

    @classmethod
    async def stations(cls, count: int) -> int:
        """Count stations."""
        return count

    @staticmethod
    def convert(degrees: float) -> float:
        return degrees * 2


class AsyncStation:
    """Answers later."""

    async def __call__(self, days: int) -> int:
        return days


@pytest.mark.rule("TYPED-01", "TYPED-27")
def test_methods_and_callable_objects_are_tools() -> None:
    station = Station("Oslo")
    measure = derive_tool(station.measure)
    assert (measure.name, measure.description) == ("measure", "Measure something.")
    assert measure.handler({"what": "wind"}, CONTEXT) == "wind at Oslo"
    called = derive_tool(station)
    assert (called.name, called.description) == ("Station", "Return the words of the station.")
    assert called.handler({"days": 2}, CONTEXT) == "Oslo in 2"
    assert derive_tool(Station.stations).execution is not ExecutionMode.THREAD
    assert derive_tool(Station.convert).handler({"degrees": 2}, CONTEXT) == 4.0
    later = derive_tool(AsyncStation())
    assert (later.execution, later.description) == (ExecutionMode.ASYNC, "Answers later.")


@pytest.mark.rule("TYPED-01")
def test_async_function_is_recognized_under_a_partial() -> None:
    async def slow(ms: int, factor: int) -> int:
        return ms * factor

    assert derive_tool(slow).execution is ExecutionMode.BRIEF
    tool = derive_tool(functools.partial(functools.partial(slow), factor=2))
    assert (tool.name, tool.execution) == ("slow", ExecutionMode.ASYNC)
    coroutine = tool.handler({"ms": 4}, CONTEXT)
    assert inspect.iscoroutine(coroutine)
    with pytest.raises(StopIteration) as stopped:
        coroutine.send(None)
    assert stopped.value.value == 8


@pytest.mark.rule("TYPED-01")
@pytest.mark.parametrize("thing", [Station, "forecast", None], ids=["class", "str", "None"])
def test_non_function_is_refused(thing: Any) -> None:
    with pytest.raises(RegistrationError, match="not a function"):
        derive_tool(thing)


@pytest.mark.rule("TYPED-01", "TYPED-30")
def test_a_function_without_a_readable_signature_is_refused() -> None:
    def odd() -> None: ...

    odd.__signature__ = 5  # type: ignore[attr-defined]
    with pytest.raises(RegistrationError, match="tool 'odd': its signature cannot be read"):
        derive_tool(odd)


@pytest.mark.rule("TYPED-01", "TYPED-27")
def test_a_builtin_is_a_function_too() -> None:
    add = functools.partial(pow, 2, mod=None)
    with pytest.raises(RegistrationError, match="parameter 'exp': it has no annotation"):
        derive_tool(add)


@pytest.mark.rule("TYPED-01", "TYPED-27", "TYPED-15")
def test_a_decorated_function_is_read_through_its_wrapper() -> None:
    def logged(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return ["logged", function(*args, **kwargs)]

        return wrapper

    tool = derive_tool(logged(forecast))
    assert tool.name == "forecast"
    assert tool.input_schema == derive_tool(forecast).input_schema
    assert tool.handler({"city": "Oslo"}, CONTEXT) == ["logged", forecast("Oslo")]


# -- refusals --------------------------------------------------------------------------------


def unannotated(city):  # type: ignore[no-untyped-def]
    ...


def unresolvable(city: Missing) -> None: ...


def malformed(city: "not a type") -> None: ...  # type: ignore[valid-type] # noqa: F722


def without_json_form(city: dict[str, list[complex]]) -> None: ...


def positional(city: str, /) -> None: ...


def variadic(*cities: str) -> None: ...


def keywords(**cities: str) -> None: ...


@pytest.mark.rule("TYPED-04")
@pytest.mark.parametrize(
    ("function", "parameter", "reason", "way_out"),
    [
        (unannotated, "city", "no annotation", "input_schema="),
        (unresolvable, "city", "annotation 'Missing' cannot be resolved", "input_schema="),
        (malformed, "city", "cannot be resolved: SyntaxError", "input_schema="),
        (without_json_form, "city", "complex has no form in JSON", "input_schema="),
        (positional, "city", "passed by position", "ToolDefinition"),
        (variadic, "cities", "passed by position", "ToolDefinition"),
        (keywords, "cities", "arguments of any name", "input_schema="),
    ],
)
def test_a_refusal_names_tool_parameter_reason_and_way_out(
    function: Any, parameter: str, reason: str, way_out: str
) -> None:
    with pytest.raises(RegistrationError) as refused:
        derive_tool(function)
    message = str(refused.value)
    assert f"tool {function.__name__!r}, parameter {parameter!r}" in message
    assert reason in message
    assert "by hand" in message
    assert way_out in message


# -- the context -----------------------------------------------------------------------------


def by_name(city: str, ctx: ToolContext) -> Any:
    return city, ctx


def by_keyword(*, call: ToolContext, city: str) -> Any:
    return city, call


def optional_context(city: str, ctx: ToolContext | None = None) -> Any:
    return city, ctx


def old_optional_context(city: str, ctx: Optional[ToolContext] = None) -> Any:  # noqa: UP045
    return city, ctx


def annotated_context(city: str, ctx: Annotated[ToolContext, "the call"]) -> Any:
    return city, ctx


def quoted_context(city: str, ctx: "Annotated[ToolContext | None, 1]" = None) -> Any:  # noqa: UP037
    return city, ctx


@pytest.mark.rule("TYPED-05")
@pytest.mark.parametrize(
    "function",
    [
        by_name,
        by_keyword,
        optional_context,
        old_optional_context,
        annotated_context,
        quoted_context,
    ],
)
def test_the_context_is_found_by_its_annotation(function: Any) -> None:
    tool = derive_tool(function)
    assert list(tool.input_schema["properties"]) == ["city"]
    assert tool.handler({"city": "Oslo"}, CONTEXT) == ("Oslo", CONTEXT)


@pytest.mark.rule("TYPED-05")
def test_the_context_is_found_where_only_type_checkers_import_it() -> None:
    namespace: dict[str, Any] = {}
    exec(
        "from __future__ import annotations\ndef tool(city: str, ctx: ToolContext): return ctx",
        namespace,
    )
    tool = derive_tool(namespace["tool"])
    assert list(tool.input_schema["properties"]) == ["city"]
    assert tool.handler({"city": "Oslo"}, CONTEXT) is CONTEXT


@pytest.mark.rule("TYPED-05")
def test_module_may_have_its_own_class_of_that_name() -> None:
    namespace: dict[str, Any] = {}
    exec(
        "from __future__ import annotations\nfrom attrs import define\n"
        "@define\nclass ToolContext:\n  x: int\n"
        "def tool(ctx: ToolContext): return ctx",
        namespace,
    )
    namespace["ToolContext"].__annotations__["x"] = int
    assert list(derive_tool(namespace["tool"]).input_schema["properties"]) == ["ctx"]


@pytest.mark.rule("TYPED-05")
def test_two_contexts_are_refused() -> None:
    def greedy(one: ToolContext, two: ToolContext) -> None: ...

    with pytest.raises(RegistrationError, match="parameter 'two': it is a second ToolContext"):
        derive_tool(greedy)


# -- binding ---------------------------------------------------------------------------------


@pytest.mark.rule("TYPED-21")
def test_missing_argument_is_the_default_object_itself() -> None:
    marker: list[int] = [1]

    def collect(items: list[int] = marker, ratio: float = 1) -> Any:
        return items, ratio

    tool = derive_tool(collect)
    assert tool.input_schema["properties"]["items"]["default"] == [1]
    assert tool.input_schema["properties"]["items"]["default"] is not marker
    items, ratio = tool.handler({}, CONTEXT)
    assert items is marker
    assert type(ratio) is int  # the default as it was written, not as it would arrive


@pytest.mark.rule("TYPED-17", "TYPED-21")
def test_sent_argument_is_converted_even_if_equal_to_the_default() -> None:
    def collect(ratio: float = 1) -> Any:
        return ratio

    assert type(derive_tool(collect).handler({"ratio": 1}, CONTEXT)) is float


@pytest.mark.rule("TYPED-18", "TYPED-21")
def test_arguments_are_not_changed() -> None:
    arguments: dict[str, Any] = {"items": [1.0, 2], "rest": {"a": [1]}}

    def collect(items: list[int], rest: dict[str, Any]) -> Any:
        return items, rest

    items, rest = derive_tool(collect).handler(arguments, CONTEXT)
    assert items == [1, 2]
    assert [type(item) for item in items] == [int, int]
    assert rest is arguments["rest"]
    assert arguments == {"items": [1.0, 2], "rest": {"a": [1]}}
    assert type(arguments["items"][0]) is float


@pytest.mark.rule("TYPED-21")
def test_parameters_may_have_names_of_the_generated_code() -> None:
    def strange(function: int, arguments: int, context: int, name: int, check: int = 1) -> Any:
        return function, arguments, context, name, check

    arguments = {"function": 1.0, "arguments": 2, "context": 3, "name": 4}
    assert derive_tool(strange).handler(arguments, CONTEXT) == (1, 2, 3, 4, 1)


@pytest.mark.rule("TYPED-21")
def test_fixed_argument_of_a_partial_is_no_argument() -> None:
    tool = derive_tool(functools.partial(forecast, days=9))
    assert list(tool.input_schema["properties"]) == ["city", "unit"]
    assert tool.handler({"city": "Oslo"}, CONTEXT) == forecast("Oslo", 9)
    tool = derive_tool(functools.partial(forecast, "Bergen"))
    assert list(tool.input_schema["properties"]) == ["days", "unit"]
    assert tool.handler({"days": 2}, CONTEXT) == forecast("Bergen", 2)


@pytest.mark.rule("TYPED-19")
def test_error_of_the_function_is_passed_on() -> None:
    def fails(days: int) -> None:
        raise ValueError(days)

    with pytest.raises(ValueError, match="7"):
        derive_tool(fails).handler({"days": 7}, CONTEXT)


# -- a schema given by hand ------------------------------------------------------------------


@define
class Place:
    name: str
    height: int = 0


def go(place: Place, speed, notes: complex = 1j) -> Any:  # type: ignore[no-untyped-def]
    return place, speed, notes


BY_HAND: dict[str, Any] = {
    "type": "object",
    "properties": {"place": {"type": "object"}, "speed": {}, "notes": {"type": "string"}},
    "required": ["place", "speed"],
}


@pytest.mark.rule("TYPED-22")
def test_a_schema_by_hand_is_used_as_it_is() -> None:
    tool = derive_tool(go, input_schema=BY_HAND)
    assert tool.input_schema == BY_HAND
    arguments = {"place": {"name": "Oslo", "height": 5.0}, "speed": 2.0, "notes": "x"}
    place, speed, notes = tool.handler(arguments, CONTEXT)
    assert place == Place("Oslo", 5)
    assert type(speed) is float
    assert notes == "x"
    assert tool.handler({"place": {"name": "Oslo"}, "speed": 1}, CONTEXT)[2] == 1j


@pytest.mark.rule("TYPED-22")
def test_unsupported_parameter_does_not_affect_the_next_one() -> None:
    @define
    class Inner:
        name: str

    @define
    class Outer:
        inner: Inner
        path: complex

    def tool(one: Outer, two: Inner, three: list[Outer]) -> Any:
        return one, two, three

    arguments = {"one": {"inner": {"name": "a"}}, "two": {"name": "b"}, "three": [{}]}
    one, two, three = derive_tool(tool, input_schema={"type": "object"}).handler(arguments, CONTEXT)
    assert (one, two, three) == (arguments["one"], Inner("b"), [{}])


@pytest.mark.rule("TYPED-19", "TYPED-45")
@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ({"place": {}, "speed": 1}, "/place"),
        ({"place": 1, "speed": 1}, "/place"),
        ({"place": {"name": "x", "height": "high"}, "speed": 1}, "/place/height"),
        ({"place": {"name": "x", "a/b~": 1}, "speed": 1}, "/place/a~1b~0"),
        ({"place": {"name": "x"}}, ""),
        ({"place": {"name": "x"}, "speed": 1, "extra": 1}, "/extra"),
    ],
)
def test_values_that_a_given_schema_accepts_are_still_checked(
    arguments: dict[str, Any], path: str
) -> None:
    with pytest.raises(ToolError) as refused:
        derive_tool(go, input_schema=BY_HAND).handler(arguments, CONTEXT)
    assert refused.value.code is ErrorCode.INVALID_ARGUMENT
    assert refused.value.details == {"reason": "not_structurable", "path": path}
    assert refused.value.message.startswith(path or "the object of arguments lacks 'speed'")


@pytest.mark.rule("TYPED-22")
def test_keyword_parameters_get_the_rest_of_a_schema_by_hand() -> None:
    def proxy(city: str, ctx: ToolContext, **rest: Any) -> Any:
        return city, ctx, rest

    schema = {"type": "object", "properties": {"city": {}, "other": {}}}
    tool = derive_tool(proxy, input_schema=schema)
    assert tool.handler({"other": 1, "city": "Oslo", "more": 2}, CONTEXT) == (
        "Oslo",
        CONTEXT,
        {"other": 1, "more": 2},
    )
    with pytest.raises(ToolError) as refused:
        tool.handler({"city": "Oslo", "ctx": "forged"}, CONTEXT)
    assert refused.value.details == {"reason": "not_structurable", "path": "/ctx"}


@pytest.mark.rule("TYPED-44")
@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "object", "properties": {"town": {}}}, "property 'town'"),
        (
            {"type": "object", "properties": {"days": {}}, "additionalProperties": False},
            "parameter 'city': it has no default, and the schema",
        ),
    ],
)
def test_given_schema_must_fit_the_signature(schema: dict[str, Any], message: str) -> None:
    with pytest.raises(RegistrationError, match=message):
        derive_tool(forecast, input_schema=schema)


@pytest.mark.rule("TYPED-22", "TYPED-44")
def test_the_context_is_no_property_of_a_schema_by_hand() -> None:
    def proxy(ctx: ToolContext, **rest: Any) -> None: ...

    with pytest.raises(RegistrationError, match="property 'ctx'"):
        derive_tool(proxy, input_schema={"type": "object", "properties": {"ctx": {}}})


@pytest.mark.rule("TYPED-45")
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "additionalProperties": False, "patternProperties": {"^c": {}}},
        {"type": "object", "properties": {"city": {}}, "additionalProperties": False},
        {"type": "object", "properties": None},
    ],
)
def test_names_that_a_given_schema_leaves_open_are_checked_on_a_call(
    schema: dict[str, Any],
) -> None:
    tool = derive_tool(forecast, input_schema=schema)
    assert tool.handler({"city": "Oslo"}, CONTEXT) == forecast("Oslo")


@pytest.mark.rule("TYPED-24")
def test_a_generator_is_no_tool() -> None:
    def numbers() -> Any:
        yield 1

    async def later() -> Any:
        yield 1

    for function in (numbers, later):
        with pytest.raises(RegistrationError, match="is a generator"):
            derive_tool(function)
