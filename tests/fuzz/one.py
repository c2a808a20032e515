"""`python -m tests.fuzz.one TARGET [options of libFuzzer]`: one target, guided by coverage."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress

import atheris  # type: ignore[import-not-found]

with atheris.instrument_imports(include=["foundation_rt"]):
    from foundation_rt.base.config import loading
    from tests.fuzz import corpus
    from tests.fuzz.targets import TARGETS

if __name__ == "__main__":
    name = sys.argv.pop(1)
    # What takes most of the time and decides nothing: a line of uvicorn for each request, and the
    # nearest known name, which takes fifty times as long as to read a configuration.
    logging.disable()
    loading._MOST_HINTS = 0
    with atheris.instrument_imports(include=["foundation_rt"]):
        for data in corpus.read(name):  # what is imported when it is needed counts too
            with suppress(Exception):  # it is found again
                TARGETS[name](data)
    atheris.Setup(sys.argv, lambda data: TARGETS[name](bytes(data)))
    atheris.Fuzz()
