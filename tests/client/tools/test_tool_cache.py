"""The cache of tools, against a model, under a clock that a test turns."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from foundation_rt.base.jsonschema.compilation import compile_schema
from foundation_rt.client.results.tool_schemas import ToolSchema
from foundation_rt.client.tools.tool_cache import ToolCache


def tool(name: str, version: int = 0) -> ToolSchema:
    schema = {"type": "object", "properties": {f"p{version}": {"type": "integer"}}}
    return ToolSchema.read({"name": name, "inputSchema": schema})


class CacheModel(RuleBasedStateMachine):
    """Every history of lists, hints, invalidations and time."""

    @initialize(ttl_ms=st.integers(0, 5000))
    def begin(self, ttl_ms: int) -> None:
        self.cache = ToolCache(ttl_ms)
        self.ttl_ms = ttl_ms
        self.now = 1000.0
        self.listed: dict[str, int] | None = None
        self.seen: dict[str, tuple[int, ToolSchema]] = {}
        self.stored_at = 0.0
        self.lifetime_ms = 0

    @rule(
        listed=st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 1)), max_size=6),
        hint=st.none()
        | st.integers(-5, 5000)
        | st.sampled_from([True, False, 2.5, 300.0, "300", [300], 2**63]),
    )
    def store(self, listed: list[tuple[str, int]], hint: Any) -> None:
        before = self.seen
        self.cache.store((tool(name, version) for name, version in listed), self.now, hint)
        self.listed = {}
        for name, version in listed:
            self.listed.setdefault(name, version)
        self.stored_at = self.now
        is_hint = not isinstance(hint, bool) and isinstance(hint, int) and hint >= 0
        self.lifetime_ms = hint if is_hint else self.ttl_ms
        self.seen = {}
        for name, version in self.listed.items():
            found = self.cache.get(name)
            assert found is not None
            if name in before and before[name][0] == version:
                assert found is before[name][1]
            self.seen[name] = (version, found)

    @rule()
    def invalidate(self) -> None:
        self.cache.invalidate()
        self.listed = None

    @rule(ms=st.integers(0, 3000))
    def wait(self, ms: int) -> None:
        self.now += ms / 1000

    @invariant()
    def the_cache_is_what_the_model_is(self) -> None:
        cache, now = self.cache, self.now
        is_young = now < self.stored_at + self.lifetime_ms / 1000
        assert cache.is_known == (self.listed is not None)
        assert cache.is_fresh(now) == (self.listed is not None and is_young)
        was_fresh_once = self.listed is not None and self.lifetime_ms > 0
        assert cache.expires_by_time(now) == (was_fresh_once and not is_young)
        assert [each.name for each in cache.tools] == [*(self.listed or {})]
        for name in "abcd":
            found = cache.get(name)
            if self.listed is None or name not in self.listed:
                assert found is None
            else:
                assert found is not None
                assert f"p{self.listed[name]}" in found.input_schema["properties"]


TestCache = pytest.mark.rule("CTOOL-06", "CTOOL-28", "CTOOL-07", "CTOOL-08")(CacheModel.TestCase)


@pytest.mark.rule("CTOOL-08")
def test_compiled_schemas_outlive_a_list_that_was_invalidated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled = []

    def count(schema: Any, **options: Any) -> Any:
        compiled.append(schema)
        return compile_schema(schema, **options)

    monkeypatch.setattr("foundation_rt.base.jsonschema.compilation.compile_schema", count)
    cache = ToolCache(ttl_ms=1000)
    for round_number in range(3):
        cache.store([tool("a"), tool("b", round_number)], now=float(round_number))
        for name in ("a", "b"):
            found = cache.get(name)
            assert found is not None
            assert found.check_arguments({"p0": 5}) == ()
        cache.invalidate()
        assert cache.tools == ()
    assert len(compiled) == 4  # `a` once, `b` once for each of its three forms


@pytest.mark.rule("CTOOL-28")
def test_ten_thousand_tools_are_kept_in_their_order() -> None:
    cache = ToolCache(ttl_ms=1000)
    names = [f"tool_{number}" for number in range(10_000)]
    for _ in range(2):
        cache.store(map(tool, [*names, *names]), now=0.0)
        assert [each.name for each in cache.tools] == names
