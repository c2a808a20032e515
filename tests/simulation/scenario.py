"""The scenario of a seed: processes, agents, settings and possible faults.

Everything is drawn from the seed, here at once or later from the same random numbers in the order
of events; so the seed alone determines the whole run.
"""

from __future__ import annotations

from enum import StrEnum
from random import Random
from typing import Any

from attrs import asdict, define, fields

from foundation_rt.agents.ledger.agent_limits import AgentLimits
from foundation_rt.agents.ledger.operations import NodeSettings
from foundation_rt.agents.ledger.retransmitter import RetransmissionPolicy
from foundation_rt.errors import ErrorCode, StructuredError

from .faults import LEASE_KEEPING, SELECTABLE, Fault

TEMPORARY = StructuredError(ErrorCode.RESOURCE_EXHAUSTED, "Try again.", {"reason": "temporary"})
"""The error of a handler that the policy calls temporary."""

PERMANENT = StructuredError(ErrorCode.INTERNAL, "The agent failed.")

_LONG_TTL_MS = 600_000
_LOSES_LEDGERS = 0.2
_WRITES = 0.5
_SCHEDULES = 0.2
_LIMITED = 0.25

START_MS = 1_700_000_000_000
"""The start of every simulation, by a correct clock."""


class Topology(StrEnum):
    """How processes share ledgers."""

    SEPARATE = "separate"
    """Each process has its own; envelopes go between them."""
    SHARED = "shared"
    """All processes share one; there is no transport."""
    MIXED = "mixed"
    """The first two share one, the others have their own; envelopes go between them."""


@define(eq=False)
class Scenario:
    """The drawn choices.

    Attributes:
        disks: for every process, the number of its ledger.
        agents: for every agent, the processes with which it is registered.
        clocks_off_ms: for every process, how far the clock of its machine is ahead at first.
        compares_clocks: whether processes whose clocks are far off may not claim.
        faults, rate: see `Dice`.
        heal_ms: when faults end, in ms after the start.
        latency_ms: of the network and of the ledgers: at least 1, at most this.
        writes: whether some handlers write with their outcomes (AACP-05).
        handler_ms: above the duration of every handler without a fault.
        as_bytes: whether envelopes are encoded and decoded on their way.
        redelivers: whether the transport delivers again what a ledger did not take.
        has_schedule: whether the first agent gets requests of a schedule.
        limits: by agent, those of the agents that have some.
    """

    seed: int
    topology: Topology
    disks: tuple[int, ...]
    agents: dict[str, tuple[int, ...]]
    clocks_off_ms: tuple[int, ...]
    compares_clocks: bool
    requests: int
    faults: tuple[Fault, ...]
    rate: float
    heal_ms: int
    latency_ms: int
    handler_ms: int
    ttl_ms: int
    lease_ms: int
    poll_ms: int
    purge_ms: int
    store_retry_ms: int
    max_batch: int
    max_held_by_agent: int
    notices: bool
    as_bytes: bool
    redelivers: bool
    policy: RetransmissionPolicy
    writes: bool
    has_schedule: bool
    limits: dict[str, AgentLimits]

    def describe(self) -> str:
        """Return a line for each choice."""
        names = (attribute.name for attribute in fields(type(self)))
        return "\n".join(f"{name:<18}{_words(getattr(self, name))}" for name in names)

    @property
    def keeps_leases(self) -> bool:
        """Whether nothing in it makes a process lose a claim, or give one back."""
        lives_long = self.ttl_ms == _LONG_TTL_MS
        return lives_long and set(self.faults) <= set(LEASE_KEEPING)

    def node_settings(self, process: int, owner: str) -> NodeSettings:
        """Return the settings for the node of a process that claims under this name."""
        return NodeSettings(
            owner=owner,
            lease_ms=self.lease_ms,
            ttl_ms=self.ttl_ms,
            poll_ms=self.poll_ms,
            purge_ms=self.purge_ms,
            store_retry_ms=self.store_retry_ms,
            max_batch=self.max_batch,
            max_held_by_agent=self.max_held_by_agent,
            has_transport=self.topology is not Topology.SHARED,
            shared=self.disks.count(self.disks[process]) > 1,
            max_clock_off_ms=self.lease_ms // 3 if self.compares_clocks else None,
        )


def draw(seed: int, rng: Random, requests: int | None = None) -> Scenario:
    """Draw the scenario of a seed.

    Args:
        requests: their number; by default drawn from the seed.
    """
    topology = rng.choices((Topology.SEPARATE, Topology.SHARED, Topology.MIXED), (3, 1, 1))[0]
    processes = rng.randint(3 if topology is Topology.MIXED else 2, 4)
    disks = _disks(topology, processes)
    short_lived = rng.random() < 0.25
    faults = _faults(rng)
    agents = _agents(rng, disks)
    drawn_requests = 200 if rng.random() < 0.01 else rng.randint(5, 60)
    return Scenario(
        seed,
        topology,
        disks,
        agents,
        tuple(
            rng.choice((0, 0, rng.randint(-500, 500), rng.randint(0, 90_000_000))) for _ in disks
        ),
        rng.random() < 0.5,
        drawn_requests if requests is None else requests,
        faults,
        rng.choice((0.02, 0.05, 0.1, 0.2)),
        heal_ms=rng.randint(2_000, 10_000),
        latency_ms=rng.choice((1, 3, 20)),
        handler_ms=rng.choice((1, 1, 20)),
        ttl_ms=rng.randint(1_000, 6_000) if short_lived else _LONG_TTL_MS,
        lease_ms=rng.randint(300, 4_000),
        poll_ms=rng.randint(100, 1_000),
        purge_ms=rng.randint(300, 5_000),
        store_retry_ms=rng.randint(50, 500),
        max_batch=rng.choice((1, 3, 500, 500)),
        max_held_by_agent=rng.choice((1, 3, 100, 100)),
        notices=rng.random() < 0.2,
        as_bytes=rng.random() < 0.05,
        redelivers=rng.random() < 0.5,
        policy=_policy(rng),
        writes=rng.random() < _WRITES,
        has_schedule=rng.random() < _SCHEDULES,
        limits={agent: _limits(rng) for agent in agents if rng.random() < _LIMITED},
    )


def _words(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_words, value)) or "none"
    if isinstance(value, RetransmissionPolicy):
        numbers = asdict(value, filter=lambda _, each: not callable(each))
        return ", ".join(f"{name} {each}" for name, each in numbers.items())
    return str(value)


def _disks(topology: Topology, processes: int) -> tuple[int, ...]:
    if topology is Topology.SHARED:
        return (0,) * processes
    if topology is Topology.MIXED:
        return (0, *range(processes - 1))
    return tuple(range(processes))


def _agents(rng: Random, disks: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Draw one to five agents; on a shared ledger some are registered with several processes."""
    agents = {}
    for number in range(rng.choice((1, 2, 3, 5))):
        home = rng.randrange(len(disks))
        others = [
            process
            for process, disk in enumerate(disks)
            if disk == disks[home] and process != home and rng.random() < 0.4
        ]
        agents[f"agent-{number}"] = (home, *others)
    return agents


def _limits(rng: Random) -> AgentLimits:
    workers = rng.choice((1, 2, 3))
    return (
        AgentLimits(workers) if rng.random() < 0.5 else AgentLimits(workers, rng.randint(1, 4), 200)
    )


def _faults(rng: Random) -> tuple[Fault, ...]:
    """Draw faults: often a few, sometimes none or all, or only those that cost no claim."""
    share = rng.choice((0, 0.1, 0.2, 0.3, 0.3, 0.5, 0.5, 1))
    among = LEASE_KEEPING if rng.random() < 0.1 else SELECTABLE
    faults = tuple(fault for fault in among if rng.random() < share)
    if rng.random() < _LOSES_LEDGERS:
        return faults
    # Most scenarios lose no ledger: little can be demanded of a lost one.
    return tuple(fault for fault in faults if fault is not Fault.LOST_LEDGER)


def _is_temporary(error: StructuredError) -> bool:
    return error.details == TEMPORARY.details


def _policy(rng: Random) -> RetransmissionPolicy:
    return RetransmissionPolicy(
        max_attempts=5 if rng.random() < 0.1 else 10_000,
        base_delay_ms=rng.randint(40, 400),
        max_delay_ms=rng.randint(1_000, 3_000),
        backoff_multiplier=rng.choice((1, 1.5, 2)),
        jitter=rng.choice((0, 0.5, 1)),
        should_retry_error=_is_temporary,
        max_executions=rng.choice((1, 5, 5)),
        max_starts=rng.choice((1, 3, 10)),
    )
