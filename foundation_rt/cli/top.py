"""The command `top`: the load of a server, anew every few seconds (CLI-74)."""

from __future__ import annotations

import asyncio
import itertools
import math
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from attrs import define

from ..client.errors import MCPError, ToolCallError
from ..errors import UsageError
from ..gateway.status import COLUMNS, URI, table_of
from ..protocol.exact_json import loads
from .args import CommandLine, CommandLineError
from .render import Heading, Output, Page, Paragraph, Part, Table
from .top_samples import CallNumbers, LoadSample, SampleWindow, sample_of_metrics, state_of_health

if TYPE_CHECKING:
    from httpx2 import AsyncClient

    from ..client.client import Client
    from ..client.targets import HttpServer

_DEFAULT_INTERVAL = 2.0  # s
_MIN_INTERVAL = 0.1
_MAX_INTERVAL = 3600.0
_OK = 200
_MAX_METRICS_BYTES = 16 * 1024 * 1024
_METRICS_TIMEOUT = 5.0  # s
_OTHER_LINES = 8  # of a page, besides calls and servers

_ENTER_SCREEN, _LEAVE_SCREEN = b"\x1b[?1049h\x1b[?25l", b"\x1b[?25h\x1b[?1049l"
_CLEAR_SCREEN = b"\x1b[H\x1b[J"


async def watch(
    client: Client, server: HttpServer, line: CommandLine, count: int | None
) -> tuple[list[dict[str, Any]], Page]:
    """Show the load of a server until `count` samples were shown.

    At a terminal each page takes the place of the one before; otherwise they follow each other.

    Args:
        client: of the server.
        server: how it is reached, for its metrics.
        line: of the command.
        count: how many samples; None: until a signal comes at a terminal, otherwise one.

    Returns:
        With `--json` all samples, otherwise the last; and the last page.

    Raises:
        CommandLineError: an option is wrong.
        MCPError: the server cannot be reached at first. Later that is shown, and tried again.
        UsageError: the server has neither metrics nor the health tool of this runtime.
    """
    as_json = "--json" in line.options
    is_live = not as_json and sys.stdout is not None and sys.stdout.isatty()
    interval = _interval(line.option("--interval"))
    more = count - 1 if count else (None if is_live else 0)
    output = Output(sys.stdout, sys.stderr)
    described = await client.initialize()
    title = Heading(described.name or "a server without a name", described.version)
    samples: list[dict[str, Any]] = []
    async with _metrics_client(server) as http:
        source = _Source(client, http, urljoin(server.url, "/metrics"))
        window, problem = SampleWindow(), ""
        window.add(await source.sample())
        with _screen(output, is_live):
            for _ in itertools.count() if more is None else range(more):
                if as_json:
                    samples.append(_wire(window))
                else:
                    output.write(_CLEAR_SCREEN if is_live else b"")
                    output.result(None, [title, *_page(window, problem, _rows(is_live))])
                    output.write(b"" if is_live else b"\n")
                await asyncio.sleep(interval)
                problem = await _add_sample(window, source)
    samples.append(_wire(window))
    return samples, [title, *_page(window, problem, _rows(is_live))]


# -- the source -----------------------------------------------------------------------------------


@define
class _Source:
    """A server, and where it says how it fares: its metrics, or else its health tool."""

    client: Client
    http: AsyncClient
    metrics_url: str
    has_metrics: bool = True
    is_gateway: bool = True

    async def sample(self) -> LoadSample:
        """Return the state of the server now.

        Raises:
            MCPError: it cannot be reached.
            UsageError: it has neither metrics nor the health tool of this runtime.
        """
        sample = (await self._metrics() if self.has_metrics else None) or await self._health()
        sample.servers = await self._servers() if self.is_gateway else None
        self.is_gateway = sample.servers is not None
        return sample

    async def _metrics(self) -> LoadSample | None:
        """Return what the metrics say; None if they cannot be read now, or never."""
        from httpx2 import HTTPError

        try:
            text = await self._metrics_text()
        except HTTPError:  # the health tool says what is wrong, in the words of the client
            return None
        found = None if text is None else _sample_of_text(text)
        self.has_metrics = found is not None
        return found

    async def _metrics_text(self) -> str | None:
        async with self.http.stream("GET", self.metrics_url) as response:
            if response.status_code != _OK:
                return None
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > _MAX_METRICS_BYTES:
                    return None
        return body.decode(errors="replace")

    async def _health(self) -> LoadSample:
        try:
            health = (await self.client.call("health")).value()
        except ToolCallError as error:
            raise UsageError(f"the tool health failed: {error}") from None
        state = state_of_health(health) if isinstance(health, Mapping) else None
        if state is None:
            raise UsageError(
                "it has neither /metrics nor the tool health of foundation-rt: top shows servers"
                " of foundation-rt"
            )
        return LoadSample(time.monotonic(), {}, state, has_metrics=False)

    async def _servers(self) -> Sequence[Mapping[str, Any]] | None:
        """Return the servers of a gateway; None of any other server."""
        described = await self.client.initialize()
        if not described.can("resources"):
            return None
        try:
            result = await self.client.read_resource(URI)
        except MCPError:
            return None
        status = loads(result.wire["contents"][0]["text"])
        servers: Sequence[Mapping[str, Any]] = status.get("servers", ())
        return servers


def _sample_of_text(text: str) -> LoadSample | None:
    """Return what metrics say; None if they are of another program."""
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError:  # the extra `cli` has it
        return None
    try:
        return sample_of_metrics(time.monotonic(), text_string_to_metric_families(text))
    except (ValueError, KeyError):
        return None


async def _add_sample(window: SampleWindow, source: _Source) -> str:
    """Add a sample; return why there is none, for people."""
    try:
        window.add(await source.sample())
    except MCPError as error:
        return f"not reached at {time.strftime('%H:%M:%S')}: {error.message}"
    return ""


def _metrics_client(server: HttpServer) -> AsyncClient:
    """Return an HTTP client with one connection: of several workers it stays with the same."""
    from httpx2 import AsyncClient, Limits

    limits = Limits(max_connections=1, keepalive_expiry=None)
    return AsyncClient(
        headers=dict(server.headers), auth=server.auth, timeout=_METRICS_TIMEOUT, limits=limits
    )


# -- the page -------------------------------------------------------------------------------------


def _page(window: SampleWindow, problem: str, most_rows: int | None) -> Iterator[Part]:
    sample = window.latest
    yield Paragraph(_load(sample.state))
    if problem:
        yield Paragraph(problem)
    if not sample.has_metrics:
        yield Paragraph(
            "to see calls, set telemetry.metrics at the server, and install the extra cli here"
        )
    else:
        since = "since its start" if window.seconds is None else f"last {window.seconds:.0f} s"
        yield Heading("CALLS", since)
        names = sorted(sample.calls, key=lambda name: (-window.recent(name).total, name))
        rows = [_row(name, window) for name in names[:most_rows]]
        yield Table(
            [("NAME", "PER S", "CALLS", "FAILED", "P50 MS", "P95 MS"), *rows], has_head=True
        )
    if sample.servers is not None:
        yield Heading("SERVERS", str(len(sample.servers)))
        yield Table([COLUMNS, *table_of({"servers": sample.servers})], has_head=True)


def _load(state: Mapping[str, Any]) -> str:
    """Return the load of the server, in a line."""
    parts = [
        str(state.get("status", "")),
        f"slots {state.get('concurrentExecutions')} of {state.get('maxConcurrentExecutions')}",
        f"memory {state.get('memoryUsageBytes', 0) / 1e6:.0f} MB",
        f"loop delay {state.get('eventLoopDelayMs', 0):.1f} ms",
        *(f"{name} {state[name]}" for name in ("sessions", "rejections") if name in state),
    ]
    return ", ".join(filter(None, parts))


def _row(name: str, window: SampleWindow) -> tuple[str, ...]:
    recent, ever = window.recent(name), window.latest.calls[name]
    rate = "-" if window.seconds is None else f"{recent.total / window.seconds:.1f}"
    return (
        name,
        rate,
        f"{ever.total:.0f}",
        f"{ever.failed:.0f}",
        _ms(recent, 0.5),
        _ms(recent, 0.95),
    )


def _ms(numbers: CallNumbers, share: float) -> str:
    seconds = numbers.quantile(share)
    if seconds is None:
        return "-"
    if math.isinf(seconds):
        return f"> {numbers.buckets[-2][0] * 1000:.0f}"
    return f"{seconds * 1000:.3g}" if seconds < 1 else f"{seconds * 1000:.0f}"


def _wire(window: SampleWindow) -> dict[str, Any]:
    """Return the latest sample, for programs."""
    sample = window.latest
    calls = [
        {
            "name": name,
            "outcomes": dict(numbers.by_outcome),
            "recent": window.recent(name).total,
            "p50Ms": _finite_ms(window.recent(name).quantile(0.5)),
            "p95Ms": _finite_ms(window.recent(name).quantile(0.95)),
        }
        for name, numbers in sorted(sample.calls.items())
    ]
    found = {"seconds": window.seconds, "state": dict(sample.state)}
    return found | {"calls": calls if sample.has_metrics else None, "servers": sample.servers}


def _finite_ms(seconds: float | None) -> float | None:
    """Return a time in ms; None without one, or beyond the longest that is measured."""
    return None if seconds is None or math.isinf(seconds) else round(seconds * 1000, 3)


# -- the terminal ---------------------------------------------------------------------------------


@contextmanager
def _screen(output: Output, is_live: bool) -> Iterator[None]:
    """Show pages on a screen of their own; leave the terminal as it was."""
    if not is_live:
        yield
        return
    output.write(_ENTER_SCREEN)
    try:
        yield
    finally:
        output.write(_LEAVE_SCREEN)


def _rows(is_live: bool) -> int | None:
    """Return how many calls a page may show; None for all."""
    return max(3, shutil.get_terminal_size().lines - _OTHER_LINES) if is_live else None


def _interval(text: str | None) -> float:
    if text is None:
        return _DEFAULT_INTERVAL
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (_MIN_INTERVAL <= seconds <= _MAX_INTERVAL):
        raise CommandLineError(
            f"--interval is a number of seconds from {_MIN_INTERVAL} to {_MAX_INTERVAL:.0f},"
            f" not {text!r}"
        )
    return seconds
