"""Moving the protocol away from descriptors 0 and 1, whatever these are.

Each test runs a script of its own: there is only one descriptor 0.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from tests.lab.servers.process import environment

PATIENCE = 60.0

PREAMBLE = """
import os, sys, fcntl
from foundation_rt.kernel.stdio.descriptors import isolate

def same_file(first, second):
    return os.path.sameopenfile(first, second)

def is_null(descriptor):
    return os.readlink(f"/proc/self/fd/{descriptor}") == "/dev/null"

def report(*words):
    os.write(2, (" ".join(map(str, words)) + "\\n").encode())

"""


def run(
    script: str, shell: str = '"$@"', environ: Mapping[str, str] | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a script under a shell command line that may close descriptors."""
    if "input" not in options:
        options["stdin"] = subprocess.DEVNULL
    words = ["sh", "-c", f"exec {shell}", "sh", sys.executable, "-c", PREAMBLE + script]
    return subprocess.run(
        words,
        env=environment() | dict(environ or {}),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        **options,
    )


@pytest.mark.rule("PROC-01")
def test_descriptors_are_moved_and_replaced() -> None:
    done = run(
        "before = [os.fstat(each).st_ino for each in (0, 1)]\n"
        "made = isolate()\n"
        "assert [os.fstat(each).st_ino for each in (made.input, made.output)] == before\n"
        "assert made.input > 2 and made.output > 2\n"
        "assert is_null(0) and same_file(1, 2)\n"
        "assert os.read(made.input, 100) == b'a request'\n"
        "os.write(made.output, b'an answer')\n"
        "print('printed')\n"
        "assert sys.stdin.read() == ''\n"
        "made.close()\n"
        "report('done')\n",
        input="a request",
    )
    assert (done.returncode, done.stdout) == (0, "an answer")
    assert done.stderr == "printed\ndone\n"


@pytest.mark.rule("PROC-01")
def test_children_inherit_standard_but_not_protocol_descriptors() -> None:
    done = run(
        "made = isolate()\n"
        "report(*(os.get_inheritable(each) for each in (0, 1, 2, made.input, made.output)))\n"
    )
    assert done.stderr == "True True True False False\n"


@pytest.mark.rule("PROC-01")
def test_flags_of_open_files_are_unchanged() -> None:
    done = run(
        "def flags(*which):\n"
        "    return [fcntl.fcntl(each, fcntl.F_GETFL) for each in which]\n"
        "before = flags(0, 1, 2)\n"
        "made = isolate()\n"
        "assert flags(made.input, made.output, 2) == before\n"
        "report('same')\n"
    )
    assert done.stderr == "same\n"


@pytest.mark.rule("PROC-01", "PROC-02")
@pytest.mark.parametrize(
    "closed",
    ["<&-", ">&-", "2>&-", "<&- >&-", "<&- 2>&-", ">&- 2>&-", "<&- >&- 2>&-"],
)
def test_closed_descriptors_are_replaced(closed: str) -> None:
    # Whatever is opened gets the lowest free number: a hole at 0, 1 or 2 would swallow it.
    done = run(
        "report_to = int(os.environ['REPORT'])\n"
        "made = isolate()\n"
        "assert min(made.input, made.output) > 2\n"
        "assert is_null(0) and same_file(1, 2)\n"
        "for each in (0, 1, 2):\n"
        "    assert os.get_inheritable(each)\n"
        "try:\n"
        "    read = os.read(made.input, 10)\n"
        "except OSError as error:\n"
        "    read = error\n"
        "try:\n"
        "    os.write(made.output, b'answer')\n"
        "    written = True\n"
        "except OSError:\n"
        "    written = False\n"
        "os.write(report_to, f'{read!r} {written}'.encode())\n",
        shell=f'"$@" 7>&1 {closed}',
        environ={"REPORT": "7"},
        input="request",
    )
    read = "b''" if "<&-" in closed else "b'request'"
    written = ">&-" not in closed.replace("2>&-", "")
    assert done.stdout == ("answer" if written else "") + f"{read} {written}"
    assert done.returncode == 0


@pytest.mark.rule("PROC-01")
def test_output_that_was_not_written_yet_goes_to_stderr() -> None:
    done = run(
        "print('before ', end='')\nmade = isolate()\nprint('after')\nmade.close()\n",
    )
    assert (done.stdout, done.stderr) == ("", "before after\n")


@pytest.mark.rule("PROC-01")
def test_prints_appear_at_once() -> None:
    done = run(
        "isolate()\nprint('now')\nos._exit(0)  # nothing is flushed any more\n",
    )
    assert done.stderr == "now\n"


@pytest.mark.rule("PROC-01", "PROC-03")
def test_closing_ends_output_to_client() -> None:
    done = run(
        "made = isolate()\n"
        "os.write(made.output, b'answer')\n"
        "made.close()\n"
        "print('printed afterwards', flush=True)\n"
        "os.system('echo by a child')\n"
        "assert is_null(0) and same_file(1, 2)\n"
    )
    assert done.stdout == "answer"
    assert done.stderr == "printed afterwards\nby a child\n"


@pytest.mark.rule("PROC-04")
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_unread_output_is_no_error_at_exit(stream: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [
            *(sys.executable, "-c"),
            PREAMBLE + "made = isolate()\n"
            "try:\n"
            f"    print('hello', file=sys.{stream}, flush=True)\n"
            "except OSError:\n"
            "    pass\n"
            "made.close()\n",
        ],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=writer,
        timeout=PATIENCE,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stdout) == (0, b"")


@pytest.mark.rule("PROC-01")
@pytest.mark.parametrize(
    "state", ["sys.stdout = None", "sys.stdout.close()", "import io; sys.stdout = io.StringIO()"]
)
def test_replaced_sys_stdout_is_handled(state: str) -> None:
    done = run(f"{state}\nmade = isolate()\nmade.close()\nreport('done')\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "done\n")
