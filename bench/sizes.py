"""How much each section measures: enough for figures, or only enough to run once."""

from __future__ import annotations

from attrs import frozen


@frozen
class Sizes:
    """Counts of rounds, calls and connections; durations are in seconds.

    Attributes:
        warm_up: calls, and requests of AACP, before measuring.
        in_process: rounds, and calls in each.
        sequential, pipelined: rounds over stdio, and calls in each.
        flat: many tools, many calls in flight, and many calls made before.
        flat_instructions: the same, for calls whose instructions are counted.
        starts: processes started for a figure about starting.
        http: rounds, and the duration of each; the client's rounds likewise.
        gateway: rounds through it, and the duration of each.
        gateway_starts: of it, before four servers.
        host_rounds: of the host, beside its floor.
        host_streams: chats that stream at once, and pieces of each.
        host_idle: chats that are open and idle.
        host_starts: of it.
        aacp: rounds.
        aacp_share: the part of its requests that each case of AACP makes.
        growth: requests of AACP that are measured, idle agents, and expired records.
        seeds: simulated histories, and requests in each.
        task_jobs: rounds of the task server, and tasks in a job.
        task_reads: reads of it.
        task_counts: how many tasks it has, few and many.
    """

    warm_up: int
    in_process: tuple[int, int]
    sequential: tuple[int, int]
    pipelined: tuple[int, int]
    flat: tuple[int, int, int]
    flat_instructions: tuple[int, int, int]
    starts: int
    http: tuple[int, float]
    connections: tuple[int, ...]
    subscribers: tuple[int, ...]
    client: tuple[int, float]
    in_flight: tuple[int, ...]
    modes: tuple[str, ...]
    gateway: tuple[int, float]
    gateway_starts: int
    host_rounds: int
    host_streams: tuple[int, int]
    host_idle: int
    host_starts: int
    aacp: int
    aacp_share: float
    growth: tuple[int, int, int]
    seeds: tuple[int, int]
    task_jobs: tuple[int, int]
    task_reads: int
    task_counts: tuple[int, int]


FULL = Sizes(
    warm_up=1000,
    in_process=(400, 100),
    sequential=(15, 1000),
    pipelined=(9, 5000),
    flat=(10_000, 1_000, 1_000_000),
    flat_instructions=(10_000, 1_000, 10_000),
    starts=15,
    http=(5, 1.0),
    connections=(1, 16, 128),
    subscribers=(1_000, 10_000),
    client=(7, 0.4),
    in_flight=(1, 16, 128),
    modes=("stateless", "handshake"),
    gateway=(7, 0.5),
    gateway_starts=7,
    host_rounds=7,
    host_streams=(200, 100),
    host_idle=1_000,
    host_starts=9,
    aacp=5,
    aacp_share=1.0,
    growth=(400, 3_000, 100_000),
    seeds=(100, 200),
    task_jobs=(9, 5000),
    task_reads=300,
    task_counts=(10_000, 1_000_000),
)

SHORTEST = Sizes(
    warm_up=10,
    in_process=(2, 1),
    sequential=(1, 5),
    pipelined=(1, 10),
    flat=(20, 5, 30),
    flat_instructions=(1_000, 1_000, 1_000),
    starts=1,
    http=(1, 0.01),
    connections=(2,),
    subscribers=(3,),
    client=(1, 0.01),
    in_flight=(2,),
    modes=("handshake",),
    gateway=(1, 0.1),
    gateway_starts=1,
    host_rounds=1,
    host_streams=(3, 5),
    host_idle=5,
    host_starts=1,
    aacp=1,
    aacp_share=0.01,
    growth=(8, 10, 20),
    seeds=(1, 5),
    task_jobs=(1, 20),
    task_reads=2,
    task_counts=(120, 140),
)
