"""Streamable HTTP in both protocol modes, and its predecessor HTTP+SSE (extra `http`)."""

import sys

from ..base.extras import require

_ON_POSIX = () if sys.platform == "win32" else ("uvloop",)

require("HTTP", "http", "httptools", "uvicorn", *_ON_POSIX)
