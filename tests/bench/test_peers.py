"""The runtime beside its peers: what a run writes, and what becomes of a peer that is missing."""

from __future__ import annotations

import copy
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from bench.peers import environments, measuring, promises, reporting
from bench.peers.__main__ import installations, main, measure
from bench.peers.contestants import HTTP, NODE, STDIO, Contestant
from bench.peers.environments import Environment, NotInstalledError, installed
from bench.peers.measuring import SHORTEST
from tests.lab.places.services import need_ps

NAMES = "bare loop,bare ASGI,foundation-rt,no-such-peer"
MISSING = Contestant("no-such-peer", "echo_floor.py", ("no-such-peer",))
LABEL = "foundation-rt"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return what a short run writes, in which one peer is missing."""
    need_ps()
    made = tmp_path_factory.mktemp("peers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bench.peers.__main__.STDIO", (*STDIO, MISSING))
        patch.setattr("bench.peers.__main__.HTTP", (*HTTP, MISSING))
        assert main([str(made), "--shortest", "--here", "--only", NAMES]) == 0
    yield made


@pytest.fixture(scope="module")
def report(folder: Path) -> dict[str, Any]:
    read: dict[str, Any] = orjson.loads((folder / "peers.json").read_bytes())
    return read


def test_report_has_figures_of_every_contestant_and_states_the_conditions(
    report: dict[str, Any],
) -> None:
    assert [row["name"] for row in report["stdio"]] == ["bare loop", LABEL]
    assert [row["name"] for row in report["http"]] == ["bare ASGI", LABEL]
    for row in report["stdio"]:
        assert len(row["rounds"]["start_ms"]) == SHORTEST.starts
        assert 0 < row["p50_us"] <= row["p95_us"] <= row["p99_us"]
        assert min(row[key] for key in ("start_ms", "calls_per_second", "rest_mb", "used_mb")) > 0
    assert report["python"] == "{}.{}.{}".format(*sys.version_info)
    assert report["machine"]["cores"] > 0
    assert {"date", "node", "rounds"} <= report.keys()


def test_missing_peer_is_a_gap_with_a_name(folder: Path, report: dict[str, Any]) -> None:
    assert [(gap["name"], gap["transport"]) for gap in report["gaps"]] == [
        ("no-such-peer", "stdio"),
        ("no-such-peer", "HTTP"),
    ]
    for text in ((folder / "peers.md").read_text("utf-8"), reporting.summary(report)):
        assert "- not measured: `no-such-peer` over stdio: no-such-peer is not in this" in text


def test_page_and_chart_are_made_from_the_report_alone(
    folder: Path, report: dict[str, Any]
) -> None:
    assert (folder / "peers.md").read_text("utf-8") == reporting.page(report)
    assert (folder / "peers.svg").read_text("utf-8") == reporting.chart(report)


def test_chart_shows_every_contestant_in_every_panel(report: dict[str, Any]) -> None:
    root = ElementTree.fromstring(reporting.chart(report))
    texts = ["".join(each.itertext()) for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count(LABEL) == 6
    assert texts.count("bare loop") == 5
    assert texts.count("bare ASGI") == 1
    assert root.get("viewBox", "").split()[2:] == [root.get("width"), root.get("height")]


def test_what_a_peer_does_better_is_said(report: dict[str, Any]) -> None:
    better = copy.deepcopy(report)
    ours = better["stdio"][1]
    ours.update(handshake_ms=40.0, calls_per_second=9000.0)
    measured = {"handshake_ms": 60.0, "calls_per_second": 9500.0}
    better["stdio"].append({**ours, "name": "peer", "version": "1.2", **measured})
    page = reporting.page(better)
    assert "- calls/s, 8 in flight, stdio: `peer` 9,500; here 9,000\n" in page
    assert "- handshake ms" not in page
    assert "`peer` 1.2 | 60 |" in page
    assert "| **9,500** |" in page
    assert f"`{LABEL}` {ours['version']} | **40** |" in page
    assert "Where a peer is better" not in reporting.page(report)


@pytest.mark.parametrize(("load", "shared"), [(1.9, False), (2.1, True)])
def test_load_of_others_is_said(report: dict[str, Any], load: float, shared: bool) -> None:
    told = {**report, "machine": {**report["machine"], "highest_load": load}}
    assert ("Other work shared" in " ".join(reporting.summary(told).split())) is shared
    assert (", shared" in reporting.chart(told)) is shared


def test_a_server_whose_echo_is_wrong_is_a_gap(tmp_path: Path) -> None:
    source = (Path(environments.__file__).parent / "servers" / "echo_floor.py").read_text()
    wrong = tmp_path / "wrong.py"
    wrong.write_text(source.replace('["text"]\n', '["text"].strip("a")\n'))

    def find(contestant: Contestant) -> Environment:
        if contestant not in STDIO:
            raise NotInstalledError("not here")
        return Environment([sys.executable, str(wrong)], None, 0, 0.0)

    done = measure({"bare loop"}, SHORTEST, find)
    assert done["stdio"] == []
    [gap] = done["gaps"]
    assert gap["transport"] == "stdio"
    assert "answered" in gap["reason"]


def test_a_server_that_hangs_is_ended_and_is_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mute = tmp_path / "mute.py"
    mute.write_text("import sys\nsys.stdin.read()\n")
    monkeypatch.setattr(measuring, "_PATIENCE", 0.3)
    environment = Environment([sys.executable, str(mute)], None, 0, 0.0)
    done = measure({"bare loop"}, SHORTEST, lambda _: environment)
    [gap] = done["gaps"]
    assert "bare loop ended" in gap["reason"]


def test_without_node_its_peers_are_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    for contestant in STDIO:
        if contestant.language == NODE:
            with pytest.raises(NotInstalledError, match="no Node"):
                installed(contestant)


def test_a_package_that_cannot_be_installed_is_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "FOLDER", tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(NotInstalledError, match="no-such-peer"):
        installed(MISSING)


def test_what_an_extra_installs_is_counted_and_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "FOLDER", tmp_path)

    def find(contestant: Contestant) -> Environment:
        if contestant.name == "foundation-rt[http]":
            raise NotInstalledError("no network")
        (tmp_path / contestant.folder).mkdir()
        return Environment([], "1", 12, 36.04)

    rows = installations(find)
    assert {"foundation-rt[cli]"} < {row["name"] for row in rows}
    assert "foundation-rt[http]" not in {row["name"] for row in rows}
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_name_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path), "--only", "mpc"]) == 2
    assert "no contestant mpc" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_the_table_of_promises_says_what_the_runtime_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promises, "LIBRARIES", (promises.LIBRARIES[0], MISSING))
    quick = dict(list(promises.PROMISES.items())[:3])
    monkeypatch.setattr(promises, "PROMISES", quick)
    lines = promises.table(environments.present).splitlines()
    assert [line.split(" | ")[1] for line in lines[2:]] == ["refused |"] * 3
