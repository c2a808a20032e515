"""The documents say what the code says: `make tables` has nothing to write."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests import docs
from tests.docs import ROOT, documents
from tests.test_links import PAGES
from tests.test_names import FENCED


@pytest.mark.rule("CONF-01", "CONF-22", "CONF-20", "ERR-01", "CERR-01")
@pytest.mark.parametrize("path", documents(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_generated_parts_of_documents_are_up_to_date(path: Path) -> None:
    assert path.read_text("utf-8") == documents()[path], "run `make tables`"


@pytest.mark.parametrize(
    "path",
    PAGES,
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_lines_of_documents_are_no_wider_than_120_characters(path: Path) -> None:
    text = FENCED.sub("", path.read_text("utf-8"))
    lines = [line for line in text.splitlines() if not line.startswith("|")]
    assert [line for line in lines if len(line) > 120] == []


def test_every_code_in_a_table_has_a_meaning() -> None:
    for table in (docs.tool_errors(), docs.json_rpc_errors()):
        assert not any(line.endswith("|  |") for line in table.splitlines())


def test_writing_tables_twice_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n<!-- client errors -->\n<!-- end -->\n\nEnd.\n")
    (tmp_path / "schema.json").write_text("{}")
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    (tmp_path / "servers.json").write_text("{}")
    monkeypatch.setattr(docs, "SCHEMA", tmp_path / "schema.json")
    monkeypatch.setattr(docs, "SERVERS_SCHEMA", tmp_path / "servers.json")
    shutil.copytree(docs.FIGURES.parent, tmp_path / "figures")
    (tmp_path / "figures" / "peers.svg").write_text("<svg/>")
    monkeypatch.setattr(docs, "FIGURES", tmp_path / "figures" / "peers.json")
    monkeypatch.setattr(docs, "PLACES", {"page.md": ("client errors",)})
    docs.main()
    written = "schema.json\nservers.json\nfigures/peers.svg\npage.md\n"
    assert capsys.readouterr().out == written
    written = page.read_text()
    assert docs.client_errors() in written
    assert written.endswith("<!-- end -->\n\nEnd.\n")
    docs.main()
    assert capsys.readouterr().out == ""
    assert page.read_text() == written


def test_a_document_without_a_place_for_its_table_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "page.md").write_text("# Page\n")
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    monkeypatch.setattr(docs, "PLACES", {"page.md": ("settings",)})
    with pytest.raises(ValueError, match="has 0 places"):
        documents()
