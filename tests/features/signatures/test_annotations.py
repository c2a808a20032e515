"""Where names in annotations are looked up."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from types import ModuleType
from typing import Any, TypedDict

import pytest
from attrs import define

from foundation_rt import Server
from foundation_rt.errors import RegistrationError
from tests.lab.apps.signatures import derive_tool


@define
class Global:
    here: int


def keys(function: Any) -> list[str]:
    return list(derive_tool(function).input_schema["properties"]["it"]["properties"])


@pytest.mark.rule("TYPED-15")
def test_names_of_the_module() -> None:
    def tool(it: Global) -> None: ...

    def quoted(it: "Global") -> None: ...  # noqa: UP037

    assert keys(tool) == keys(quoted) == ["here"]


@pytest.mark.rule("TYPED-15")
def test_names_of_the_enclosing_functions() -> None:
    @define
    class Outer:
        inner: int

    def make() -> Any:
        @dataclass
        class Middle:
            outer: Outer
            again: Middle | None

        class Options(TypedDict):
            middle: Middle

        def tool(it: Options, other: Outer) -> None: ...

        return derive_tool(tool)

    schema = make().input_schema
    assert set(schema["definitions"]) == {"Outer", "Middle"}


@pytest.mark.rule("TYPED-15")
def test_a_local_name_hides_a_global_one() -> None:
    @define
    class Global:
        there: int

    def tool(it: Global) -> None: ...

    assert keys(tool) == ["there"]


def returned() -> Any:
    @define
    class Local:
        here: int

    def closing(it: Local) -> Any:
        return Local

    def not_closing(it: Local) -> Any: ...

    def closing_late(it: Local) -> Any:
        return Local, late

    if sys.argv is None:
        late = 1
    return closing, not_closing, closing_late


@pytest.mark.rule("TYPED-30", "TYPED-15")
def test_names_of_functions_that_have_returned() -> None:
    closing, not_closing, closing_late = returned()
    assert keys(closing) == keys(closing_late) == ["here"]
    with pytest.raises(RegistrationError, match="annotation 'Local' cannot be resolved: NameError"):
        derive_tool(not_closing)


def recursive() -> Any:
    @define
    class Node:
        rest: Node | None
        other: Other | None

    @define
    class Other:
        value: int

    def tool(it: Node) -> Any:
        return Node, Other

    return tool


@pytest.mark.rule("TYPED-15")
def test_a_local_class_finds_itself_and_its_neighbours() -> None:
    schema = derive_tool(recursive()).input_schema
    assert set(schema["definitions"]) == {"Node"}


@pytest.mark.rule("TYPED-15")
def test_a_class_is_resolved_in_its_own_module() -> None:
    module = ModuleType("somewhere_else")
    sys.modules["somewhere_else"] = module
    source = (
        "from __future__ import annotations\n"
        "import attrs\nGlobal = float\n"
        "@attrs.define\nclass Elsewhere:\n  one: Global\n"
        "@attrs.define\nclass Base:\n  zero: Global\n"
    )
    try:
        exec(source, module.__dict__)

        @define
        class Child(module.Base):  # type: ignore[misc, name-defined]
            two: Global

        def tool(one: module.Elsewhere, two: Child) -> None: ...  # type: ignore[name-defined]

        properties = derive_tool(tool).input_schema["properties"]
    finally:
        del sys.modules["somewhere_else"]
    assert properties["one"]["properties"] == {"one": {"type": "number"}}
    assert properties["two"]["properties"]["zero"] == {"type": "number"}
    assert properties["two"]["properties"]["two"]["type"] == "object"


@define
class Holder:
    @define
    class Held:
        one: int

    held: Held
    date: date | None = None


@pytest.mark.rule("TYPED-15")
def test_a_class_may_hold_a_class_and_name_a_member_like_its_type() -> None:
    def tool(it: Holder) -> None: ...

    properties = derive_tool(tool).input_schema["properties"]["it"]["properties"]
    assert properties["held"]["properties"] == {"one": {"type": "integer"}}
    assert properties["date"]["anyOf"][0]["format"] == "date"


@pytest.mark.rule("TYPED-30", "TYPED-15")
@pytest.mark.parametrize("annotation", ["", "1 +", "[].nothing", "1 / 0", "Global | 'x'"])
def test_annotation_that_raises_is_refused(annotation: str) -> None:
    def tool(it: Any) -> None: ...

    tool.__annotations__ = {"it": annotation}
    with pytest.raises(RegistrationError, match="parameter 'it': its annotation"):
        derive_tool(tool)


@pytest.mark.rule("TYPED-15")
def test_a_name_of_something_else_than_a_class_is_resolved() -> None:
    namespace: dict[str, Any] = {}
    exec(
        "from __future__ import annotations\nMaybe = int | None\ndef tool(it: Maybe): ...",
        namespace,
    )
    schema = derive_tool(namespace["tool"]).input_schema
    assert schema["properties"]["it"] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}


# -- names that are not there, in strings and in annotations that are evaluated when they are read

POSTPONED = "from __future__ import annotations\n"
LAZY = pytest.param(
    "",
    id="lazy",
    marks=pytest.mark.skipif(
        sys.version_info < (3, 14), reason="annotations are evaluated at once before Python 3.14"
    ),
)
Names = dict[str, Any]


@pytest.fixture(params=[pytest.param(POSTPONED, id="postponed"), LAZY])
def load(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Names]:
    """Return a function that runs a text as a module and returns its names."""

    def load(text: str) -> Names:
        module = ModuleType("lazily_annotated")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(compile(request.param + text, "lazy", "exec", dont_inherit=True), vars(module))
        return vars(module)

    return load


@pytest.mark.rule("TYPED-05", "TYPED-54", "TYPED-15")
@pytest.mark.parametrize(
    "annotation",
    ["ToolContext", "ToolContext | None", "ToolContext[Absent]"],
)
@pytest.mark.parametrize("imported", ["", "from foundation_rt import ToolContext\n"])
def test_context_need_not_be_imported(
    annotation: str, imported: str, load: Callable[[str], Names]
) -> None:
    text = f"def tool(a: int, context: {annotation} = None, *, b: str = 'x') -> Absent: ..."
    schema = derive_tool(load(imported + text)["tool"]).input_schema
    assert list(schema["properties"]) == ["a", "b"]


@pytest.mark.rule("TYPED-30", "TYPED-15")
@pytest.mark.parametrize("annotation", ["Absent", "list[Absent]", "absent.Absent", "Later"])
def test_name_that_is_not_there_is_refused(annotation: str, load: Callable[[str], Names]) -> None:
    tool = load(f"def tool(it: {annotation}): ...")["tool"]
    with pytest.raises(RegistrationError, match=r"'it': its annotation.* NameError: name '"):
        derive_tool(tool)


@pytest.mark.rule("TYPED-15")
def test_class_may_come_after_the_function_that_uses_it(load: Callable[[str], Names]) -> None:
    text = """
from dataclasses import dataclass
def tool(it: Later) -> list[Later]: ...
@dataclass
class Later:
    other: Last | None = None
@dataclass
class Last:
    it: int
"""
    assert keys(load(text)["tool"]) == ["other"]


@pytest.mark.rule("TYPED-15")
def test_result_with_a_name_that_is_not_there_has_no_schema(load: Callable[[str], Names]) -> None:
    text = "class Result:\n    it: Absent\ndef tool() -> Result: ..."
    assert derive_tool(load(text)["tool"]).output_schema is None


@pytest.mark.rule("TYPED-15")
def test_hook_may_have_annotations_that_cannot_be_evaluated(load: Callable[[str], Names]) -> None:
    text = "async def hook(server: Absent):\n    yield"
    Server("hooked").lifespan(load(text)["hook"])


@pytest.mark.rule("TYPED-15")
@pytest.mark.parametrize("load", [LAZY], indirect=True)
def test_lazy_annotation_knows_the_names_of_functions_that_have_returned(
    load: Callable[[str], Names],
) -> None:
    text = """
from dataclasses import dataclass
def make():
    @dataclass
    class Local:
        here: int
    def tool(it: list[Local], other: Local | None, context: ToolContext): ...
    return tool
"""
    properties = derive_tool(load(text)["make"]()).input_schema["properties"]
    assert list(properties) == ["it", "other"]
