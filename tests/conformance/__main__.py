"""Run the public conformance suite: `make conformance`.

Every scenario of both current revisions runs against the server in `server.py`, over HTTP. What
failed or warned is printed, and the score of each revision; the exit code is 1 if a check failed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.support.http_server import serve_http

from . import suite

SERVER = Path(__file__).parent / "server.py"


def main() -> int:
    """Run what was asked for; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("revision", nargs="*", help="these only, as in 2025-11-25")
    parser.add_argument("--url", help="of a running server, instead of ours")
    options = parser.parse_args()
    revisions = options.revision or suite.REVISIONS
    if options.url:
        scores = [score(options.url, revision) for revision in revisions]
    else:
        with serve_http(SERVER) as server:
            scores = [score(server.url, revision) for revision in revisions]
    return int(any(each.passed < each.total for each in scores))


def score(url: str, revision: str) -> suite.Score:
    """Run one revision's scenarios and print what came of them."""
    with tempfile.TemporaryDirectory() as results:
        outcome = suite.run(url, revision, Path(results))
    print(outcome, flush=True)
    return outcome


if __name__ == "__main__":
    sys.exit(main())
