"""Prompts, resources and completions from functions: types read from text, refusals, choices."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable
from datetime import date
from functools import partial
from typing import Annotated, Any, Literal
from uuid import UUID

import orjson
import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from foundation_rt import Constraints, ToolContext
from foundation_rt.errors import ErrorCode, RegistrationError, ToolError
from foundation_rt.features.resources.uri_template import parse_template
from foundation_rt.features.typed.feature_signatures import (
    derive_completion,
    derive_prompt,
    derive_resource,
)
from foundation_rt.kernel.registry.tools import ExecutionMode


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Level(enum.Enum):
    LOW = 1
    HIGH = 2


@frozen
class Place:
    city: str
    days: int = 1


Recursive = dict[str, "Recursive"] | str


def called(function: Callable[..., Any], /, **arguments: str) -> Any:
    return derive_prompt(function, ToolContext).handler(arguments, None)


# -- derived prompts


@pytest.mark.rule("PROMPT-03")
def test_prompt_is_derived_from_its_function() -> None:
    def review(code: str, language: Annotated[str, "Of the code."] = "python") -> str:
        """Review some code.

        Args:
            code: what to review
        """
        return f"{code} in {language}"

    typed = derive_prompt(review, ToolContext)
    assert (typed.name, typed.description) == ("review", "Review some code.")
    assert [(each.name, each.description, each.required) for each in typed.arguments] == [
        ("code", "what to review", True),
        ("language", "Of the code.", False),
    ]
    assert typed.execution is ExecutionMode.THREAD
    assert typed.choices == {}
    assert typed.handler({"code": "x"}, None) == "x in python"


@pytest.mark.rule("PROMPT-03")
def test_an_async_prompt_gets_its_context() -> None:
    async def review(ctx: ToolContext, code: str = "") -> Any:
        return ctx, code

    typed = derive_prompt(review, ToolContext)
    assert typed.description is None
    assert [each.name for each in typed.arguments] == ["code"]
    assert typed.execution is ExecutionMode.ASYNC
    assert asyncio.run(typed.handler({"code": "x"}, "context")) == ("context", "x")  # type: ignore[arg-type]


@pytest.mark.rule("PROMPT-03")
def test_fixed_argument_of_a_partial_is_no_prompt_argument() -> None:
    def review(code: str, language: str) -> str:
        return code + language

    typed = derive_prompt(partial(review, language="py"), ToolContext)
    assert [each.name for each in typed.arguments] == ["code"]
    assert typed.handler({"code": "x"}, None) == "xpy"


def positional(code: str, /) -> None: ...
def several(*codes: str) -> None: ...
def named(**codes: str) -> None: ...
def bare(code) -> None: ...  # type: ignore[no-untyped-def]
def strange(code: "Unknown") -> None: ...  # type: ignore[name-defined]  # noqa: F821, UP037
def unlikely(code: complex) -> None: ...
def twice(one: ToolContext, two: ToolContext) -> None: ...
def generator(code: str) -> Any:
    yield code


@pytest.mark.rule("PROMPT-03")
@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (
            positional,
            "prompt 'positional', parameter 'code': it is passed by position; make it one that is",
        ),
        (several, "passed by name"),
        (named, "give each a parameter"),
        (bare, "it has no annotation; change it"),
        (strange, "cannot be resolved"),
        (unlikely, "no form in JSON"),
        (twice, "parameter 'two': it is a second ToolContext, after 'one'"),
        (generator, "prompt 'generator' is a generator, and a prompt has one result"),
        (Place, "'Place' is not a function"),
        (5, "'int' is not a function"),
    ],
)
def test_a_function_that_is_no_prompt_is_refused(function: Any, problem: str) -> None:
    with pytest.raises(RegistrationError, match=problem):
        derive_prompt(function, ToolContext)


# -- from text to values


@pytest.mark.rule("PROMPT-04")
@pytest.mark.parametrize(
    ("hint", "text", "value"),
    [
        (str, "5", "5"),
        (str, "", ""),
        (Any, "5", "5"),
        (int, "5", 5),
        (int, " -5 ", -5),
        (int, "5.0", 5),
        (float, "5", 5.0),
        (float, "1e3", 1000.0),
        (bool, "true", True),
        (bool, "false", False),
        (int | None, "null", None),
        (int | None, "7", 7),
        (str | None, "null", "null"),
        (int | str, "5", "5"),
        (Literal["a", "b"], "a", "a"),
        (Literal["a", 5], "a", "a"),
        (Literal["a", 5], "5", 5),
        (Literal["auto"] | int, "auto", "auto"),
        (Literal["auto"] | int, "5", 5),
        (Literal["auto"] | None, "null", None),
        (Color, "green", Color.GREEN),
        (Color | None, "red", Color.RED),
        (Level, "2", Level.HIGH),
        (date, "2026-07-28", date(2026, 7, 28)),
        (UUID, "12345678-1234-5678-1234-567812345678", UUID("12345678123456781234567812345678")),
        (list[int], "[1, 2]", [1, 2]),
        (tuple[int, str], '[1, "a"]', (1, "a")),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (Place, '{"city": "Oslo"}', Place("Oslo")),
        (list[Place], '[{"city": "Oslo", "days": 3}]', [Place("Oslo", 3)]),
        (Annotated[int, Constraints(minimum=1)], "1", 1),
        (Annotated[str, Constraints(max_length=2)], "ab", "ab"),
    ],
)
def test_text_is_read_as_its_type(hint: Any, text: str, value: Any) -> None:
    def prompt(it: Any) -> Any:
        return it

    prompt.__annotations__["it"] = hint
    found = called(prompt, it=text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.rule("PROMPT-09")
@pytest.mark.parametrize(
    ("hint", "text"),
    [
        (int, "five"),
        (int, ""),
        (int, "5.5"),
        (int, "05"),
        (int, "true"),
        (int, '"5"'),
        (int, str(2**70)),
        (float, "NaN"),
        (float, "Infinity"),
        (bool, "True"),
        (bool, "1"),
        (Literal["a", "b"], "c"),
        (Literal["a", 5], "6"),
        (Literal["auto"] | int, "manual"),
        (Color, "RED"),
        (Level, "3"),
        (date, "28.7.2026"),
        (date, "2026-02-30"),
        (UUID, "x"),
        (list[int], "[1,"),
        (list[int], "[" * 2000),
        (Place, '{"days": 1}'),
        (Annotated[int, Constraints(minimum=1)], "0"),
        (Annotated[str, Constraints(max_length=2)], "abc"),
    ],
)
def test_text_that_does_not_fit_is_refused_by_name(hint: Any, text: str) -> None:
    def prompt(it: Any) -> Any:
        raise AssertionError("it was called")

    prompt.__annotations__["it"] = hint
    with pytest.raises(ToolError, match="/it") as raised:
        called(prompt, it=text)
    assert raised.value.code is ErrorCode.INVALID_ARGUMENT


@pytest.mark.rule("PROMPT-04")
def test_empty_text_means_the_default() -> None:
    def prompt(
        number: int = 5, color: Color = Color.RED, text: str = "default", day: date | None = None
    ) -> Any:
        return number, color, text, day

    assert called(prompt) == (5, Color.RED, "default", None)
    assert called(prompt, number="", color="", text="") == (5, Color.RED, "", None)


@pytest.mark.rule("PROMPT-04")
@given(st.integers(-(2**63), 2**63 - 1) | st.booleans() | st.lists(st.integers(0, 9)))
def test_every_json_text_of_the_type_arrives(value: Any) -> None:
    def prompt(it: Any) -> Any:
        return it

    prompt.__annotations__["it"] = {bool: bool, int: int, list: list[int]}[type(value)]
    assert called(prompt, it=orjson.dumps(value).decode()) == value


@pytest.mark.rule("PROMPT-04")
def test_recursive_type_is_read_from_text() -> None:
    @frozen
    class Tree:
        name: str
        children: tuple[Tree, ...] = ()

    def prompt(tree: Tree, other: Tree) -> Any:
        return tree.children[0].name + other.name

    text = '{"name": "a", "children": [{"name": "b"}]}'
    assert called(prompt, tree=text, other='{"name": "c"}') == "bc"


# -- choices


@pytest.mark.rule("COMP-04")
def test_few_values_are_completions() -> None:
    def prompt(
        color: Color,
        level: Level,
        language: Literal["py", "js"],
        mixed: Literal["a", 5, True] | None,
        deep: bool,
        maybe: bool | None,
        text: str,
        number: int,
    ) -> None: ...

    choices = {
        name: each.values for name, each in derive_prompt(prompt, ToolContext).choices.items()
    }
    assert choices == {
        "color": ("red", "green"),
        "level": ("1", "2"),
        "language": ("py", "js"),
        "mixed": ("a", "5", "true"),
        "deep": ("true", "false"),
        "maybe": ("true", "false"),
    }


# -- resources


@pytest.mark.rule("MRES-21")
def test_a_template_gives_its_variables() -> None:
    def task(id: int, uri: str, ctx: ToolContext) -> Any:
        """One task."""
        return id, uri, ctx

    typed = derive_resource(task, parse_template("a:{id}"), ToolContext)
    assert (typed.name, typed.description) == ("task", "One task.")
    assert typed.handler({"id": "7", "uri": "task://7"}, "c") == (7, "task://7", "c")  # type: ignore[arg-type]
    with pytest.raises(ToolError, match="/id"):
        typed.handler({"id": "x", "uri": "task://x"}, None)  # type: ignore[arg-type]


@pytest.mark.rule("MRES-21")
def test_a_resource_needs_no_parameters() -> None:
    def everything() -> str:
        return "all"

    assert (
        derive_resource(everything, None, ToolContext).handler({"uri": "task://all"}, None) == "all"
    )  # type: ignore[arg-type]


@pytest.mark.rule("MRES-21")
def test_variables_and_parameters_must_be_the_same() -> None:
    def task(id: int, limit: int = 5) -> None: ...

    with pytest.raises(RegistrationError, match="a variable 'name' and the function no parameter"):
        derive_resource(task, parse_template("a:{id}/{name}"), ToolContext)
    with pytest.raises(RegistrationError, match="'limit': there is no such variable"):
        derive_resource(task, parse_template("a:{id}"), ToolContext)


# -- completions


@pytest.mark.rule("COMP-05")
def test_completer_may_take_value_arguments_and_context() -> None:
    given = {"value": "a", "arguments": {"b": "c"}}

    def one(value: str) -> Any:
        return [value]

    def two(value: str, known: dict[str, str]) -> Any:
        return [value, known]

    async def three(value: str, known: Any, *, ctx: ToolContext) -> Any:
        return [value, known, ctx]

    def untyped(value, context: "Unknown" = None) -> Any:  # type: ignore[no-untyped-def,name-defined]  # noqa: F821, UP037
        return [value, context]

    assert derive_completion(one, ToolContext).handler(given, None) == ["a"]  # type: ignore[arg-type]
    assert derive_completion(two, ToolContext).handler(given, None) == ["a", {"b": "c"}]  # type: ignore[arg-type]
    assert derive_completion(untyped, ToolContext).handler(given, None) == ["a", {"b": "c"}]  # type: ignore[arg-type]
    typed = derive_completion(three, ToolContext)
    assert typed.execution is ExecutionMode.ASYNC
    assert asyncio.run(typed.handler(given, "x")) == ["a", {"b": "c"}, "x"]  # type: ignore[arg-type]


@pytest.mark.rule("COMP-05")
def test_completer_with_other_parameters_is_refused() -> None:
    def none() -> None: ...
    def only(ctx: ToolContext) -> None: ...
    def many(a: str, b: str, c: str) -> None: ...
    def keyword(a: str, *, b: str) -> None: ...

    for function, problem in (
        (none, r"it needs a parameter: def none\(value: str\)"),
        (only, "it needs a parameter"),
        (many, "'c': a completion takes value and arguments"),
        (keyword, "'b': a completion takes value and arguments"),
    ):
        with pytest.raises(RegistrationError, match=problem):
            derive_completion(function, ToolContext)
