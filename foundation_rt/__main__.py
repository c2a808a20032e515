"""`python -m foundation_rt`, and the console script `foundation-rt`."""

from __future__ import annotations

import sys

_INTERRUPTED_EXIT = 130


def main() -> None:
    """Run the command line and exit with its code; interrupted, without a traceback (CLI-24)."""
    try:
        # Imported here, and so where an interrupt is caught: it takes most of the start.
        from .cli.main import main as run

        code = run()
    except KeyboardInterrupt:
        code = _INTERRUPTED_EXIT
    sys.exit(code)


if __name__ == "__main__":
    main()
