"""The lists of a coordinator after any order of starts, ends, changes and reloads, in fake time."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foundation_rt.apps.coordinator import Coordinator, ServerState
from foundation_rt.base.clock import ManualClock
from tests.lab.clock.virtual_loop import run_virtual
from tests.lab.peers.script_memory import MemoryHarness
from tests.lab.sizes import examples

NAMES = ("a", "b", "c")
names = st.sampled_from(NAMES)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("end"), names),
        st.tuples(st.just("refuse"), names),
        st.tuples(st.just("admit"), names),
        st.tuples(st.just("list"), names, st.sampled_from(["x", "y"])),
        st.tuples(st.just("call"), names),
        st.tuples(st.just("reload"), st.lists(names, unique=True)),
        st.tuples(st.just("wait"), st.sampled_from([0.1, 1.0, 5.0, 40.0])),
    ),
    max_size=12,
)


class World:
    """Servers in memory, each of which lists one tool and may refuse connections."""

    def __init__(self) -> None:
        self.harnesses = {name: MemoryHarness("2025-11-25") for name in NAMES}
        self.tools = dict.fromkeys(NAMES, "x")
        self.refusing: set[str] = set()
        for name in NAMES:
            self.play(name)

    def play(self, name: str) -> None:
        tool = {"name": self.tools[name], "inputSchema": {"type": "object"}}
        acts: dict[str, Any] = {"tools/list": [["answer", {"result": {"tools": [tool]}}]]}
        if name in self.refusing:
            acts["open"] = [["refuse"]]
        self.harnesses[name].play(acts)

    def plans(self, listed: list[str]) -> dict[str, Any]:
        # The same function each time: a bound method is equal to itself, and so is the plan.
        return {name: self.harnesses[name].make_transport for name in listed}

    def end(self, name: str) -> None:
        for transport in self.harnesses[name].transports:
            transport.lose()

    async def step(self, servers: Coordinator, step: str, value: Any, *more: Any) -> None:
        match step:
            case "end":
                self.end(value)
            case "refuse":
                self.refusing.add(value)
                self.play(value)
                self.end(value)
            case "admit":
                self.refusing.discard(value)
                self.play(value)
            case "list":
                self.tools[value] = more[0]
                self.play(value)
                self.end(value)
            case "call":
                name = f"{value}:{self.tools[value]}"
                call = asyncio.create_task(servers.call(name, timeout_ms=100))
                await asyncio.wait([call])
                call.exception()
            case "reload":
                await servers.reload(self.plans(value))
            case "wait":
                await asyncio.sleep(value)


@pytest.mark.rule("COORD-10", "COORD-13", "COORD-17", "COORD-18", "COORD-43")
@settings(max_examples=examples(60))
@given(st.lists(names, unique=True, min_size=1), steps)
def test_lists_after_any_history_are_those_of_the_servers_that_are_there(
    listed: list[str], history: list[Any]
) -> None:
    async def scenario(clock: ManualClock) -> None:
        world, heard = World(), list[list[str]]()

        def lists(servers: Coordinator) -> list[str]:
            return [f"{server}:{tool['name']}" for server, tool in servers.listed("tools")]

        servers = Coordinator(
            world.plans(listed),
            on_list_changed=lambda kind: kind == "guidance" or heard.append(lists(servers)),
        )
        async with servers:
            heard.append(lists(servers))
            present = listed
            for step in history:
                await world.step(servers, *step)
                if step[0] == "reload":
                    present = step[1]
                assert list(servers.states) == present
                listed_now = [entry.qualified_name for entry in servers.tools]
                assert listed_now == lists(servers)
            await asyncio.sleep(200)  # every attempt that is due, and every end of a list
            expected = [name for name in present if name not in world.refusing]
            assert lists(servers) == [f"{name}:{world.tools[name]}" for name in expected]
            for name, status in servers.states.items():
                assert (status.state is ServerState.READY) is (name in expected)
            # What was announced last is what is there, and no announcement said nothing new.
            assert heard[-1] == lists(servers)
            assert all(one != two for one, two in pairwise(heard))

    run_virtual(scenario)
