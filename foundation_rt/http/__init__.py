"""Streamable HTTP in both protocol modes, and its predecessor HTTP+SSE (extra `http`)."""

from importlib.util import find_spec

from ..errors import MissingExtraError

if not all(
    map(find_spec, ("cryptography", "httptools", "joserfc", "starlette", "uvicorn", "uvloop"))
):
    raise MissingExtraError("HTTP", "http")
