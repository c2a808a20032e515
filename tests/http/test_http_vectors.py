"""The server's conversations over HTTP, held with an ASGI application in the same process."""

from __future__ import annotations

import re

import pytest

from tests.lab.peers.server_http_vectors import ServerHttpVector, hold, load
from tests.lab.peers.vectors import FOLDER

VECTORS = load()


def test_the_table_of_the_vectors_names_every_file() -> None:
    readme = (FOLDER / "README.md").read_text()
    named = re.findall(r"^\| `http/([a-z-]+)\.jsonl` \|", readme, re.MULTILINE)
    assert named == list(dict.fromkeys(named))
    assert {*named} == {vector.file for vector in VECTORS}


def test_every_conversation_has_a_name_of_its_own_and_rules() -> None:
    assert len({vector.id for vector in VECTORS}) == len(VECTORS)
    assert all(vector.rules for vector in VECTORS)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.id)
async def test_application_answers_as_the_vector_says(vector: ServerHttpVector) -> None:
    await hold(vector)
