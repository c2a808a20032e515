"""What cannot be a ledger or a transport is refused before anything starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from foundation_rt.agents.ledger import setup
from foundation_rt.agents.ledger.setup import check_settings, make_store, make_transport
from foundation_rt.agents.stores.memory import InMemoryAACPPersistenceAdapter
from foundation_rt.base.clock import ManualClock
from foundation_rt.base.config.feature_sections import AacpSection
from foundation_rt.base.logs.logger import MemorySink, StructuredLogger
from foundation_rt.errors import MissingExtraError, UsageError
from tests.lab.programs.program import run_source
from tests.lab.servers.process import command, environment

pytestmark = pytest.mark.rule("AACP-47")

LOGGER = StructuredLogger(MemorySink(), ManualClock())


@pytest.mark.parametrize(
    ("store", "transport", "what"),
    [
        ("sqlite:/dev/null/x.db", "none", "no folder"),
        ("sqlite:/tmp", "none", "is no file"),
        ("sqlite::memory:", "none", "is no file"),
        ("postgresql://", "none", "names no host"),
        ("postgres://", "none", "names no host"),
        ("postgresql://user:s3cr3t@host:port/db", "none", "port must be a number"),
        ("sqlite:x.db", "nats://", "names no host"),
        ("sqlite:x.db", "nats://user:s3cr3t@host:99999", "port must be a number"),
    ],
)
def test_invalid_address_is_refused(store: str, transport: str, what: str) -> None:
    with pytest.raises(UsageError, match=what) as refusal:
        check_settings(AacpSection("mine", store, transport))
    assert "s3cr3t" not in str(refusal.value)


@pytest.mark.rule("AACP-84")
def test_name_that_is_no_agent_id_is_refused() -> None:
    for name in (" mine", "mine ", "a\u200bb"):
        with pytest.raises(UsageError, match=r"aacp\.name must be"):
            check_settings(AacpSection(name))


def test_valid_address_is_not_connected_to() -> None:
    for store, transport in (
        ("memory", "none"),
        ("sqlite:x.db", "nats://user:secret@nowhere.invalid:4222"),
        ("postgresql://nowhere.invalid/db", "none"),
        ("postgresql:///db?host=/var/run", "none"),
        ("postgres://nowhere.invalid/db", "none"),
    ):
        check_settings(AacpSection("mine", store, transport))


def test_an_extra_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"\[postgres\]"):
        check_settings(AacpSection("mine", "postgresql://host/db"))
    with pytest.raises(MissingExtraError, match=r"\[nats\]"):
        check_settings(AacpSection("mine", "sqlite:x.db", "nats://host"))


def test_each_address_has_its_store_and_transport(tmp_path: Path) -> None:
    assert isinstance(
        make_store(AacpSection(store="memory"), LOGGER, None), InMemoryAACPPersistenceAdapter
    )
    for address, name in (
        (f"sqlite:{tmp_path / 'x.db'}", "SqliteAACPPersistenceAdapter"),
        ("postgresql://host/db", "PostgresAACPPersistenceAdapter"),
        ("postgres://host/db", "PostgresAACPPersistenceAdapter"),
    ):
        assert type(make_store(AacpSection(store=address), LOGGER, None)).__name__ == name
    assert make_transport("none", LOGGER) is None
    assert type(make_transport("nats://host:4222", LOGGER)).__name__ == "NatsTransport"


@pytest.mark.rule("AACP-84")
def test_a_transport_needs_a_ledger_that_lasts_and_a_name_of_its_own() -> None:
    with pytest.raises(UsageError, match="outlives the process"):
        check_settings(AacpSection("mine", "memory", "nats://host"))
    with pytest.raises(UsageError, match="no other ledger has"):
        check_settings(AacpSection(store="sqlite:x.db", transport="nats://host"))


def test_server_with_invalid_address_does_not_start() -> None:
    settings = {"aacp.store": "sqlite:/dev/null/x.db"}
    done = subprocess.run(
        [sys.executable, *command("serve")[1:]],
        env=environment(settings),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=40,
    )
    assert done.returncode == 1
    assert f"aacp.store: there is no folder {Path('/dev/null').absolute()}:" in done.stderr.decode()


_WITHOUT_EXTRAS = """
import sys

for name in ("psycopg", "nats"):
    sys.modules[name] = None  # so that importing it fails
from foundation_rt.agents import *
from foundation_rt import agents
from foundation_rt.errors import MissingExtraError

assert RequestRecord.__name__ == "RequestRecord" and MessageRecord.__name__ == "MessageRecord"
assert {"RequestRecord", "MessageRecord", "AgentCoordinatorV2"} <= set(agents.__all__)
for name, extra in (("NatsTransport", "nats"), ("PostgresAACPPersistenceAdapter", "postgres")):
    assert name in dir(agents)
    try:
        getattr(agents, name)
    except MissingExtraError as error:
        assert f"[{extra}]" in str(error), error
    else:
        raise AssertionError(name)
"""


def test_all_names_but_those_of_extras_import_without_extras() -> None:
    done = run_source(_WITHOUT_EXTRAS)
    assert (done.returncode, done.stderr) == (0, "")
