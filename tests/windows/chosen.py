"""Which tests run on Windows, and what keeps the others from it.

`NEEDS` names tests by the beginning of their ids, and the longest beginning counts. A file with a
need is not even imported there.
"""

from __future__ import annotations

TESTS = (
    "tests/windows",
    "tests/client/transports/test_family.py",
    "tests/client/transports/test_windows_command.py",
    "tests/core",
    "tests/engine",
    "tests/http_client",
    "tests/protocol",
    "tests/registry",
    "tests/signatures",
    "tests/test_files.py",
)
"""What `make windows` runs: of these, all that needs nothing that Windows has not."""

NEEDS = {
    "tests/core/tasks/test_process.py": "a scripted host of processes (signals, poll)",
    "tests/core/test_results.py": "pydantic",
    "tests/engine/test_interruptions.py": "the reactor of POSIX (poll)",
    "tests/http_client/test_connection.py": "uvloop",
    "tests/signatures/test_constraints.py": "pydantic",
    "tests/signatures/test_differential.py": "pydantic",
    "tests/signatures/test_pydantic.py": "pydantic",
    "tests/signatures/test_standard_types.py": "pydantic",
    "tests/signatures/test_writers.py": "pydantic",
}


def need_of(test: str) -> str | None:
    """Return what a test, a file or a folder needs; None for one that runs there."""
    found = [
        each
        for each in NEEDS
        if test == each or test.startswith((f"{each}::", f"{each}/", f"{each}["))
    ]
    return NEEDS[max(found, key=len)] if found else None
