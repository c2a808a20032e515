"""`python -m tests.fuzz.one TARGET [options of libFuzzer]`: one target, guided by coverage."""

from __future__ import annotations

import sys

import atheris  # type: ignore[import-not-found]

with atheris.instrument_imports(include=["foundation_rt"]):
    from tests.fuzz.targets import TARGETS

if __name__ == "__main__":
    target = TARGETS[sys.argv.pop(1)]
    atheris.Setup(sys.argv, lambda data: target(bytes(data)))
    atheris.Fuzz()
