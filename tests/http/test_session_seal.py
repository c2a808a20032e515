"""Ids that name their worker: only the principal they were sealed for has them."""

from __future__ import annotations

import re
import tempfile
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from foundation_rt import Server
from foundation_rt.http.cluster.session_seal import MAX_ID_LENGTH, IdSeal, WorkerName
from foundation_rt.http.cluster.worker_group import make_group
from foundation_rt.http.cluster.worker_processes import WorkerPlace
from foundation_rt.protocol.peer import Peer, describe_peer
from foundation_rt.protocol.principal import Principal
from foundation_rt.protocol.revisions import HANDSHAKE_REVISIONS, REVISIONS
from tests.lab.sizes import examples

SEAL = IdSeal("5a" * 32)
OWNER = WorkerName("0123456789ab", 3)
ALICE, BOB = Principal("alice"), Principal("bob")

capabilities = st.fixed_dictionaries(
    {},
    optional={
        "elicitation": st.sampled_from([{}, {"form": {}}, {"form": {}, "url": {}}]),
        "sampling": st.sampled_from([{}, {"tools": {}, "context": {}}]),
        "roots": st.sampled_from([{}, {"listChanged": True}, {"listChanged": False}]),
        "extensions": st.dictionaries(st.text(max_size=300), st.just({}), max_size=20),
    },
)
names = st.one_of(st.none(), st.text(max_size=300))


def peer(declared: dict[str, object], name: str | None, revision: str) -> Peer:
    info = {"name": name, "version": "1"}
    return describe_peer(REVISIONS[revision], declared, info).retain()


SEALED = SEAL.session_id(OWNER, ALICE, peer({}, "client", "2025-11-25"))


@pytest.mark.rule("HTTP-60", "HTTP-66", "AUTH-14", "AUTH-15")
@settings(max_examples=examples(100))
@given(capabilities, names, st.sampled_from(HANDSHAKE_REVISIONS), st.sampled_from([None, ALICE]))
def test_id_of_a_session_is_read_by_its_principal_alone(
    declared: dict[str, object], name: str | None, revision: str, principal: Principal | None
) -> None:
    client = peer(declared, name, revision)
    session_id = SEAL.session_id(OWNER, principal, client)
    assert re.fullmatch("[A-Za-z0-9_-]{60,1024}", session_id)
    found = SEAL.read_session(session_id, principal)
    assert found is not None and found.owner == OWNER
    if found.peer is not None:
        assert found.peer.capabilities == client.capabilities
        assert (found.peer.name, found.peer.version) == (client.name, client.version)
        assert found.peer.revision is client.revision
    else:  # left out, since the id would be too long
        assert len(repr((client.capabilities, client.name))) > MAX_ID_LENGTH // 3
    assert SEAL.read_session(session_id, BOB) is None
    assert IdSeal("5b" * 32).read_session(session_id, principal) is None
    assert SEAL.read_task(f"x.{session_id}") is None


@pytest.mark.rule("HTTP-60")
@settings(max_examples=examples(200))
@given(st.data())
def test_id_that_was_changed_is_unknown(data: st.DataObject) -> None:
    session_id = SEALED  # an id is random, and what is drawn may not be
    place = data.draw(st.integers(0, len(session_id) - 2))  # the last has bits that mean nothing
    other = data.draw(st.sampled_from("ABCxyz019-_").filter(lambda each: each != session_id[place]))
    changed = session_id[:place] + other + session_id[place + 1 :]
    assert SEAL.read_session(changed, ALICE) is None
    assert SEAL.read_session(session_id[:place], ALICE) is None


@pytest.mark.rule("HTTP-60")
@settings(max_examples=examples(200))
@given(st.text(max_size=2000))
def test_any_text_may_come_as_an_id(text: str) -> None:
    assert SEAL.read_session(text, None) is None
    assert SEAL.read_task(text) is None


@pytest.mark.rule("HTTP-60")
def test_id_is_of_at_most_1024_characters() -> None:
    """What does not fit beside the worker is left out; a longer text is no id."""
    client = peer({}, "client", "2025-11-25")
    long = evolve(client, name="x" * 2000)
    session_id = SEAL.session_id(OWNER, None, long)
    assert len(session_id) < MAX_ID_LENGTH
    found = SEAL.read_session(session_id, None)
    assert found is not None and (found.owner, found.peer) == (OWNER, None)
    longer = session_id + "x" * MAX_ID_LENGTH
    assert SEAL.read_session(longer, None) is None
    assert SEAL.read_task(longer) is None


@pytest.mark.rule("TASK-10", "TASK-14")
def test_id_of_a_task_names_its_worker_after_random_bits() -> None:
    ids = {SEAL.task_id(OWNER) for _ in range(100)}
    assert len({each.partition(".")[0] for each in ids}) == 100
    assert all(SEAL.read_task(each) == OWNER for each in ids)
    assert all(SEAL.read_session(each, None) is None for each in ids)


def test_peer_of_an_unknown_revision_is_left_out() -> None:
    client = peer({}, "client", "2025-11-25")
    sealed = SEAL.session_id(OWNER, None, Peer(REVISIONS["2026-07-28"], client.name))
    found = SEAL.read_session(sealed, None)
    assert found is not None and found.peer is None


@pytest.mark.rule("HTTP-60", "HTTP-69", "TASK-14")
async def test_ids_of_other_groups_are_unknown_without_redis() -> None:
    server = Server("x", config={"security": {"state_key": "5a" * 32}})
    with tempfile.TemporaryDirectory() as folder:
        group = make_group(server.runtime, WorkerPlace("5a" * 32, OWNER.group, 0, folder))
        assert group is not None
        scope: Any = {"type": "http", "server": ("127.0.0.1", 1)}
        for owner, address in (
            (OWNER, f"{folder}/3.sock"),
            (WorkerName("ffffffffffff", 0), None),
            (group.name, None),
        ):
            session_id = SEAL.session_id(owner, ALICE)
            assert await group.find(session_id, ALICE, scope) == address
            assert await group.find(session_id, BOB, scope) is None
            assert await group.find_task(SEAL.task_id(owner), scope) == address
        await group.close()  # it has not begun
