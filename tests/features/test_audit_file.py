"""The file of the audit log: shared, moved, full, away, and never in the way of a call."""

from __future__ import annotations

import gc
import os
import sys
import threading
from pathlib import Path
from typing import Any

import orjson
import pytest

from foundation_rt import Server, UsageError
from foundation_rt.base.clock import ManualClock
from foundation_rt.base.files import try_lock
from foundation_rt.base.logs.logger import MemorySink, StructuredLogger
from foundation_rt.features import audit_file
from foundation_rt.features.audit_file import AuditFile, check_path
from tests.lab.apps.observed import call_everything, converse, make_server
from tests.lab.servers import fork_server
from tests.lab.servers.process import environment

PATIENCE = 60.0


class Bench:
    """A file with the log that it reports to."""

    def __init__(self, path: Path, capacity: int = 1_000_000) -> None:
        self.path, self.sink = path, MemorySink()
        logger = StructuredLogger(self.sink, ManualClock())
        self.file = AuditFile(str(path), capacity, logger)

    def write(self, *numbers: int) -> None:
        for number in numbers:
            self.file.write(line(number))

    def flush(self) -> None:
        assert self.file.flush(PATIENCE)

    def log(self) -> list[tuple[str, Any]]:
        return [(entry["message"], entry.get("dropped")) for entry in self.sink.lines]


def line(number: int) -> bytes:
    return orjson.dumps({"number": number}) + b"\n"


def numbers(path: Path) -> list[int]:
    """Return the numbers in a file, every line of which is whole."""
    return [orjson.loads(each)["number"] for each in path.read_bytes().splitlines()]


@pytest.fixture
def bench(tmp_path: Path) -> Any:
    made = Bench(tmp_path / "audit.jsonl")
    yield made
    made.file.close(PATIENCE)


@pytest.mark.rule("OPS-36")
def test_file_is_made_for_its_owner_alone(bench: Bench) -> None:
    bench.write(1, 2)
    bench.flush()
    assert numbers(bench.path) == [1, 2]
    assert bench.path.stat().st_mode & 0o777 == 0o600
    assert bench.log() == []


@pytest.mark.rule("OPS-36")
def test_existing_file_is_appended_to_and_keeps_its_mode(bench: Bench) -> None:
    bench.path.write_bytes(line(0))
    bench.path.chmod(0o640)
    bench.write(1)
    bench.flush()
    assert numbers(bench.path) == [0, 1]
    assert bench.path.stat().st_mode & 0o777 == 0o640


@pytest.mark.rule("OPS-36")
def test_records_are_in_the_file_and_not_in_the_log(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    server = make_server({"audit": {"enabled": True, "file": str(path)}})
    runtime = server.runtime
    server.audit("STARTED", "ADMIN")
    runtime.flush_logs(PATIENCE)
    assert b'"STARTED"' in path.read_bytes()
    path.unlink()
    logged = converse(server, call_everything)
    assert [each for each in logged if each["message"] == "audit"] == []
    written = [orjson.loads(each) for each in path.read_bytes().splitlines()]
    expected = converse(make_server({"audit": {"enabled": True}}), call_everything)
    events = [each["eventType"] for each in expected if each["message"] == "audit"]
    assert [each["eventType"] for each in written] == events


@pytest.mark.rule("OPS-36")
def test_path_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (tmp_path, fifo, tmp_path / "missing" / "audit.jsonl"):
        server = Server("s", config={"audit": {"enabled": True, "file": str(path)}})
        with pytest.raises(UsageError, match=r"^audit.file: "):
            _ = server.runtime
    check_path(str(tmp_path / "new.jsonl"))
    assert not (tmp_path / "new.jsonl").exists()


@pytest.mark.rule("OPS-36")
def test_folder_and_file_without_permission_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The tests may run as root, who may write anywhere.
    monkeypatch.setattr(os, "access", lambda path, mode: bool(Path(path).stat().st_mode & 0o200))
    path = tmp_path / "audit.jsonl"
    path.touch(0o400)
    with pytest.raises(UsageError, match="cannot be read and written"):
        check_path(str(path))
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError, match="no file can be made"):
        check_path(str(tmp_path / "other.jsonl"))


@pytest.mark.rule("OPS-37")
@pytest.mark.parametrize("leave", ["rename", "rename and create", "delete"])
def test_moved_file_is_left_before_the_next_write(bench: Bench, leave: str) -> None:
    moved = bench.path.with_suffix(".1")
    bench.write(1)
    bench.flush()
    if leave == "delete":
        bench.path.unlink()
    else:
        bench.path.rename(moved)
    if leave == "rename and create":
        bench.path.touch(0o600)
    bench.write(2)
    bench.flush()
    assert numbers(bench.path) == [2]
    assert leave == "delete" or numbers(moved) == [1]
    assert bench.log() == []


@pytest.mark.rule("OPS-37")
def test_file_that_another_program_cuts_goes_on_at_its_end(bench: Bench) -> None:
    bench.write(1)
    bench.flush()
    os.truncate(bench.path, 0)
    bench.write(2)
    bench.flush()
    assert numbers(bench.path) == [2]


@pytest.mark.rule("OPS-37")
def test_part_of_a_line_breaks_no_other(bench: Bench) -> None:
    bench.path.write_bytes(b'{"number": 1, "te')
    bench.write(2)
    bench.flush()
    assert bench.path.read_bytes() == b'{"number": 1, "te\n' + line(2)


WRITER = """
import sys
from foundation_rt.base.clock import SystemClock
from foundation_rt.base.logs.logger import MemorySink, StructuredLogger
from foundation_rt.features.audit_file import AuditFile

path, first, rest = sys.argv[1], int(sys.argv[2]), "x" * 3_000
file = AuditFile(path, 1 << 30, StructuredLogger(MemorySink(), SystemClock()))
for number in range(first, first + 500):
    file.write(b'{"number":%d,"rest":"%s"}\\n' % (number, rest.encode()))
file.close(30)
assert file.dropped == 0
"""


@pytest.mark.rule("OPS-37")
def test_processes_share_a_file_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    command = [sys.executable, "-c", WRITER, str(path)]
    firsts = (0, 500, 1000, 1500)
    processes = [fork_server.Popen([*command, str(first)], env=environment()) for first in firsts]
    assert [each.wait(PATIENCE) for each in processes] == [0, 0, 0, 0]
    found = numbers(path)
    assert sorted(found) == [*range(2000)]
    for first in firsts:
        assert [each for each in found if first <= each < first + 500] == [
            *range(first, first + 500)
        ]


FULL = """
import resource, sys
from pathlib import Path
from foundation_rt.base.clock import SystemClock
from foundation_rt.base.logs.logger import MemorySink, StructuredLogger
from foundation_rt.features import audit_file

audit_file._RETRY_SECONDS = 0.01
path, sink = Path(sys.argv[1]), MemorySink()
file = audit_file.AuditFile(str(path), 3_000, StructuredLogger(sink, SystemClock()))
line = b'{"number": %03d, "rest": "' + b"x" * 70 + b'"}\\n'
size = len(line % 0)
resource.setrlimit(resource.RLIMIT_FSIZE, (5 * size + size // 2, resource.RLIM_INFINITY))
for number in range(5):
    file.write(line % number)
assert file.flush(30)
for number in range(5, 60):  # 3,000 bytes of these wait, the rest is dropped
    file.write(line % number)
assert not file.flush(0.05)
assert path.read_bytes() == b"".join(line % number for number in range(5))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert file.flush(30)
kept = 3_000 // size
assert path.read_bytes() == b"".join(line % number for number in range(5 + kept))
assert file.dropped == 55 - kept
file.write(line % 99)
file.close(30)
assert path.read_bytes().endswith(line % 99)
told = [(each["message"], each.get("dropped")) for each in sink.lines]
assert sorted(told[:2]) == [
    ("audit records are dropped", None),
    ("the audit file cannot be written", None),
], told
assert told[2:] == [("the audit file is written again", 55 - kept)], told
"""


@pytest.mark.rule("OPS-37", "OPS-38")
def test_full_disk_breaks_no_line_and_loses_what_is_beyond_the_buffer(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FULL, str(tmp_path / "audit.jsonl")]
    fork_server.run(command, env=environment(), check=True, timeout=PATIENCE)


@pytest.mark.rule("OPS-38")
def test_file_that_comes_back_gets_what_has_waited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_file, "_RETRY_SECONDS", 0.01)
    folder = tmp_path / "logs"
    bench = Bench(folder / "audit.jsonl")
    bench.write(1)
    assert not bench.file.flush(0.05)
    folder.mkdir()
    bench.write(2)
    bench.flush()
    assert numbers(bench.path) == [1, 2]
    bench.file.close(PATIENCE)
    messages = ["the audit file cannot be written", "the audit file is written again"]
    assert [message for message, _ in bench.log()] == messages
    assert bench.sink.lines[0]["reason"] == "No such file or directory"


@pytest.mark.rule("OPS-38")
def test_path_that_became_a_fifo_blocks_nothing(bench: Bench) -> None:
    os.mkfifo(bench.path)
    bench.write(1)
    assert not bench.file.flush(0.05)
    bench.path.unlink()
    bench.flush()
    assert numbers(bench.path) == [1]


@pytest.mark.rule("OPS-37", "OPS-38")
def test_lock_that_is_never_released_is_not_waited_for(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_file, "_LOCK_SECONDS", 0.01)
    with bench.path.open("wb") as holder:
        assert try_lock(holder.fileno())
        bench.write(1, 2)
        bench.flush()
    assert numbers(bench.path) == [1, 2]


@pytest.mark.rule("WIN-22")
def test_without_atomic_appends_records_wait_for_the_lock(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_file, "_APPENDS_AT_ONCE", False)
    monkeypatch.setattr(audit_file, "_LOCK_SECONDS", 0.01)
    monkeypatch.setattr(audit_file, "_RETRY_SECONDS", 0.01)
    with bench.path.open("wb") as holder:
        assert try_lock(holder.fileno())
        bench.write(1, 2)
        assert not bench.file.flush(0.05)
        assert bench.path.stat().st_size == 0
    bench.flush()
    assert numbers(bench.path) == [1, 2]


@pytest.mark.rule("OPS-38")
def test_threads_write_every_record_once(bench: Bench) -> None:
    def work(first: int) -> None:
        bench.write(*range(first, first + 1_000))

    threads = [threading.Thread(target=work, args=(first,)) for first in range(0, 4_000, 1_000)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    bench.flush()
    assert sorted(numbers(bench.path)) == [*range(4_000)]


@pytest.mark.rule("OPS-39")
def test_closing_writes_what_waits_and_takes_no_more(bench: Bench) -> None:
    bench.write(*range(100))
    bench.file.close(PATIENCE)
    bench.write(100)
    bench.file.close(PATIENCE)
    assert numbers(bench.path) == [*range(100)]
    assert bench.file.dropped == 1


@pytest.mark.rule("OPS-39")
def test_closing_counts_what_could_not_be_written(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "missing" / "audit.jsonl")
    bench.write(1, 2, 3)
    bench.file.close(0.05)
    assert bench.file.dropped == 3
    assert ("audit records are lost", 3) in bench.log()


@pytest.mark.rule("OPS-39")
def test_file_that_is_collected_is_written_and_its_thread_ends(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    bench = Bench(tmp_path / "audit.jsonl")
    bench.write(1)
    path = bench.path
    [thread] = set(threading.enumerate()) - before
    assert (thread.name, thread.daemon) == ("foundation-rt-audit", True)
    del bench
    gc.collect()
    assert numbers(path) == [1]
    thread.join(PATIENCE)
    assert not thread.is_alive()


@pytest.mark.rule("OPS-39")
def test_forked_child_writes_its_own_records_only(bench: Bench) -> None:
    bench.write(1)
    bench.flush()
    bench.write(2)
    child = os.fork()
    if child == 0:
        bench.write(3)
        os._exit(0 if bench.file.flush(PATIENCE) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    bench.flush()
    assert sorted(numbers(bench.path)) == [1, 2, 3]
