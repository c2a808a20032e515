"""The catalogue of errors: what stands in it, and that the guide shows it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from foundation_rt.client.errors import CATALOGUE, RANGES

GUIDE = (Path(__file__).parents[2] / "spec/guide/errors.md").read_text()


@pytest.mark.rule("CERR-01")
def test_every_code_is_in_order_under_its_own_name_with_words_for_its_user() -> None:
    assert list(CATALOGUE) == sorted(CATALOGUE)
    assert len({entry.name for entry in CATALOGUE.values()}) == len(CATALOGUE)
    for code, entry in CATALOGUE.items():
        assert code == entry.code
        assert re.fullmatch(r"[A-Z]+(_[A-Z]+)*", entry.name)
        assert entry.user_message
        assert entry.suggested_action.endswith(".")
        assert type(entry.retryable) is bool


@pytest.mark.rule("CERR-01")
def test_codes_of_the_seed_have_its_texts() -> None:
    retryable = {code: CATALOGUE[code].retryable for code in CATALOGUE}
    seed = {"E201": True, "E202": True, "E203": False, "E204": False, "E302": True, "E303": True}
    assert seed.items() <= retryable.items()
    assert retryable["E205"] is False
    messages = {entry.user_message for entry in CATALOGUE.values()}
    assert {"Processing service unavailable", "Request timeout", "Invalid parameters"} <= messages
    assert {"Document conversion failed", "Export generation failed"} <= messages


@pytest.mark.rule("CERR-02")
def test_the_ranges_are_reserved_side_by_side_and_hold_every_code() -> None:
    assert [each.name for each in RANGES] == ["File", "URL", "MCP", "Processing", "Database"]
    for number, each in enumerate(RANGES):
        assert (each.first, each.last) == (f"E{number}00", f"E{number}99")
    used = [code for code in CATALOGUE if any(r.first <= code <= r.last for r in RANGES)]
    assert used == list(CATALOGUE)
    assert {code[:2] for code in CATALOGUE} == {"E2", "E3"}


@pytest.mark.rule("CERR-02")
def test_the_guide_names_the_ranges() -> None:
    listed = ", ".join(f"`{each.first[:2]}xx` {each.description}" for each in RANGES)
    assert listed in re.sub(r"\s+", " ", GUIDE)
