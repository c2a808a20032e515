"""`python -m foundation_rt`, and the console script `foundation-rt`."""

from __future__ import annotations

import sys

from .command_line.cli import main as run


def main() -> None:
    """Run the command line and exit with its code."""
    sys.exit(run())


if __name__ == "__main__":
    main()
