"""The representation that classes share."""

from __future__ import annotations

from attrs import define, field

from foundation_rt import ToolDefinition
from foundation_rt.base.shown import Shown
from foundation_rt.kernel.registry.tools import ToolRegistry


class Plain(Shown):
    __slots__ = ("_hidden", "one")

    def __init__(self, one: int) -> None:
        self.one = one
        self._hidden = 2


class Derived(Plain):
    __slots__ = ("two", "unset")

    def __init__(self) -> None:
        super().__init__(1)
        self.two = "b"


@define(eq=False, repr=False)
class WithAttrs(Shown):
    name: str
    _secret: str = "s"
    later: int = field(init=False)


def test_repr_shows_public_attributes_of_all_classes() -> None:
    assert repr(Plain(1)) == "Plain(one=1)"
    assert repr(Derived()) == "Derived(one=1, two='b', unset=Ellipsis)"
    assert repr(WithAttrs("x")) == "WithAttrs(name='x', later=Ellipsis)"


def test_registered_tool_is_shown_with_its_definition() -> None:
    registry = ToolRegistry()
    tool = registry.register(ToolDefinition("echo", "", {"type": "object"}), lambda *_: None)
    assert repr(tool).startswith("RegisteredTool(definition=ToolDefinition(name='echo', ")
