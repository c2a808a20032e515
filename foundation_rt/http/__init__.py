"""Streamable HTTP in both protocol modes, and its predecessor HTTP+SSE (extra `http`)."""

import sys
from importlib.util import find_spec

from ..errors import MissingExtraError

_NEEDED = ["cryptography", "httptools", "joserfc", "starlette", "uvicorn"]
if sys.platform != "win32":
    _NEEDED.append("uvloop")
if not all(map(find_spec, _NEEDED)):
    raise MissingExtraError("HTTP", "http")
