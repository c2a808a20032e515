"""The id generators: real UUIDs, never twice, and counted ones for tests."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import uuid
import weakref

import pytest

from foundation_rt.base.ids import SequentialIds, UuidGenerator
from foundation_rt.base.request_ids import UuidRequestIds


def assert_uuid_v4(text: str) -> None:
    parsed = uuid.UUID(text)
    assert str(parsed) == text
    assert parsed.version == 4
    assert parsed.variant == uuid.RFC_4122


class Random(UuidGenerator):
    """All kinds of random ids."""

    def __init__(self) -> None:
        super().__init__()
        self.request_id = UuidRequestIds().request_id


def all_kinds(ids: Random | SequentialIds) -> list[str]:
    return [
        ids.run_id(),
        ids.correlation_id(),
        ids.connection_correlation_id(),
        ids.request_id(),
    ]


@pytest.mark.rule("ID-01")
def test_random_ids_are_uuids_of_version_4() -> None:
    ids = Random()
    for _ in range(200):
        for text in all_kinds(ids):
            assert_uuid_v4(text)


@pytest.mark.rule("ID-01")
def test_every_other_bit_of_a_random_id_is_random() -> None:
    ids = UuidGenerator()
    ones = zeros = 0
    for _ in range(500):
        number = uuid.UUID(ids.run_id()).int
        ones |= number
        zeros |= ~number
    version_and_variant = (0xF << 76) | (0b11 << 62)
    assert ones & zeros & ((1 << 128) - 1) == ((1 << 128) - 1) & ~version_and_variant


@pytest.mark.rule("ID-01")
def test_ids_are_unique_across_threads() -> None:
    ids = Random()
    start = threading.Barrier(8)
    taken: list[list[str]] = [[] for _ in range(8)]

    def take(own: list[str]) -> None:
        start.wait()
        for _ in range(1000):
            own.extend(all_kinds(ids))

    threads = [threading.Thread(target=take, args=(own,)) for own in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everything = [text for own in taken for text in own]
    assert len(everything) == len(set(everything)) == 32_000


FORK = """
import os
from foundation_rt.base.ids import UuidGenerator
from foundation_rt.base.request_ids import UuidRequestIds

ids = UuidGenerator()
requests = UuidRequestIds()
gone = UuidGenerator()
ids.run_id()
requests.request_id()
del gone  # its hook must not mind
child = os.fork()
each = "".join(f"{ids.run_id()}\\n{requests.request_id()}\\n" for _ in range(50))
os.write(1, each.encode())
if child:
    os.waitpid(child, 0)
"""


@pytest.mark.rule("ID-02")
def test_forked_child_generates_different_ids() -> None:
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=True)
    ids = done.stdout.split()
    assert len(ids) == len(set(ids)) == 200


def test_unreferenced_generator_is_collected() -> None:
    ids = UuidGenerator()
    trace = weakref.ref(ids)
    del ids
    gc.collect()
    assert trace() is None


@pytest.mark.rule("ID-03", "ID-04")
def test_sequential_ids_count_each_kind_by_itself() -> None:
    ids = SequentialIds()
    assert all_kinds(ids) == [
        "00000000-0000-4000-8000-000000000001",
        "00000000-0000-4000-9000-000000000001",
        "00000000-0000-4000-a000-000000000001",
        "00000000-0000-4000-b000-000000000001",
    ]
    for _ in range(14):
        ids.run_id()
    assert ids.run_id() == "00000000-0000-4000-8000-000000000010"
    assert ids.correlation_id() == "00000000-0000-4000-9000-000000000002"
    for text in all_kinds(ids):
        assert_uuid_v4(text)
