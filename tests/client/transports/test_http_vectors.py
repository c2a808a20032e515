"""The client's conversations over HTTP, held with a server that says what the vectors say."""

from __future__ import annotations

import logging
import re

import pytest

from foundation_rt.client.transports import http_streams
from tests.lab.peers.client_http_vectors import SECONDS, HttpPlayer, HttpVector, load
from tests.lab.peers.client_vectors import FOLDER

VECTORS = load()


def test_the_table_of_the_vectors_names_every_file() -> None:
    readme = (FOLDER.parent / "README.md").read_text()
    named = re.findall(r"^\| `client/http/([a-z-]+)\.jsonl` \|", readme, re.MULTILINE)
    assert named == list(dict.fromkeys(named))
    assert {*named} == {vector.file for vector in VECTORS}


def test_every_conversation_has_a_name_of_its_own_and_rules() -> None:
    assert len({vector.id for vector in VECTORS}) == len(VECTORS)
    assert all(vector.rules for vector in VECTORS)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.id)
async def test_transport_does_what_the_vector_says(
    vector: HttpVector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(http_streams, "_RETRY_MS", 5)
    monkeypatch.setattr(http_streams, "_MOST_RETRY", 0.02)
    for name, seconds in vector.seconds.items():
        for place in SECONDS[name]:
            monkeypatch.setattr(*place, seconds)

    def log() -> list[str]:
        records = [each for each in caplog.records if each.name == "foundation_rt.client"]
        return [each.getMessage() for each in records]

    await HttpPlayer(vector, log).play()
    assert not [secret for secret in vector.secrets if secret in caplog.text]
