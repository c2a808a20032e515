"""Tests that need a service skip without it, and fail where it has to be there."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.lab.places import services


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield an address without a listener; it stays bound, so that no other process takes it."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        monkeypatch.setattr(services, "NATS_URL", f"nats://user:s3cret@{address}")
        yield address


def test_without_the_service_a_test_skips_and_says_why(
    nowhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "REQUIRED", False)
    with pytest.raises(pytest.skip.Exception, match=f"NATS at {nowhere} .*refused") as skipped:
        services.need_nats()
    assert "s3cret" not in str(skipped.value)


def test_where_services_are_required_a_test_fails(
    nowhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "REQUIRED", True)
    with pytest.raises(pytest.fail.Exception, match="SERVICES=required"):
        services.need_nats()


def test_with_the_service_its_url_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"redis://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setattr(services, "REDIS_URL", url)
        assert services.need_redis() == url


def test_names_are_each_others_own() -> None:
    assert services.unique_name() != services.unique_name()


def test_without_a_package_registry_a_test_skips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "REQUIRED", False)
    services.need_registry("npm error code EINTEGRITY")
    with pytest.raises(pytest.skip.Exception, match="not reachable: EAI_AGAIN"):
        services.need_registry("npm error code EAI_AGAIN")
