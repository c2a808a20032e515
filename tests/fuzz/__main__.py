"""Hostile bytes, guided by coverage: `python -m tests.fuzz [TARGET...]`, that is `make fuzz`.

Each target begins with its corpus. What reaches a line that nothing has reached is kept there, as
is what fails: `make test` runs it from then on.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from hashlib import sha1
from pathlib import Path

from . import corpus
from .targets import TARGETS

_KEPT = 150
"""At most so many inputs of a target are kept: the shortest."""
_LONGEST = 2048
_SLOWEST_S = 10
_MEMORY = "/dev/shm"
"""For temporary files: on a disk that others use one takes milliseconds."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}")
    parser.add_argument("--inputs", type=int, default=100_000, help="so many for each target")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if unknown := set(options.targets) - TARGETS.keys():
        parser.error(f"there is no target {', '.join(sorted(unknown))}")
    failed = [
        name for name in options.targets or TARGETS if not fuzz(name, options.inputs, options.seed)
    ]
    print("failed: " + ", ".join(failed) if failed else "no target has failed")
    return 1 if failed else 0


def fuzz(target: str, inputs: int, seed: int) -> bool:
    """Feed a target; return whether it held all that it promises."""
    kept = corpus.read(target)
    place = _MEMORY if Path(_MEMORY).is_dir() else None
    with tempfile.TemporaryDirectory(dir=place) as folder:
        found, broken = Path(folder, "found"), Path(folder, "broken")
        found.mkdir()
        broken.mkdir()
        for data in kept:
            (found / sha1(data, usedforsecurity=False).hexdigest()).write_bytes(data)
        print(f"{target}: {len(kept)} inputs to begin with, {inputs:,} to come", flush=True)
        code = _run(
            target,
            folder,
            f"-runs={inputs}",
            f"-seed={seed}",
            f"-timeout={_SLOWEST_S}",
            "-report_slow_units=3600",  # by the clock: on a busy machine any unit may be slow
            f"-artifact_prefix={broken}/",
            str(found),
        )
        reached = sorted((each.read_bytes() for each in found.iterdir()), key=len)
        failures = [each.read_bytes() for each in broken.iterdir()]
    corpus.write(target, [*reached[:_KEPT], *failures])
    for data in failures:
        print(f"{target}: failed with {data!r}")
    return code == 0 and not failures


def _run(target: str, folder: str, *options: str) -> int:
    command = [sys.executable, "-m", "tests.fuzz.one", target]
    common = (f"-max_len={_LONGEST}", "-rss_limit_mb=4096", "-print_final_stats=1", "-verbosity=1")
    result = subprocess.run(
        [*command, *common, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TMPDIR": folder},
    )
    lines = result.stdout.splitlines()
    shown = lines[-40:] if result.returncode else [x for x in lines if x.startswith("stat::")]
    print("\n".join(f"  {line}" for line in shown), flush=True)
    return result.returncode


if __name__ == "__main__":
    sys.exit(main())
