"""Settings that every test runs under."""

from __future__ import annotations

import gc
import inspect
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from foundation_rt.base.clock import ManualClock
from foundation_rt.base.logs import logger
from foundation_rt.base.logs.writer import BackgroundWriter
from tests.lab.async_tests import run_test
from tests.lab.places.services import drop_emptied_schemas
from tests.lab.servers import fork_server
from tests.lab.sizes import EXPLORES, SIZE, examples
from tests.windows.chosen import SAMPLES, need_of

# No deadline: timings on shared machines are noise. A failure prints what reproduces it. Every run
# tries the same examples, so that a change is judged by itself, unless it is asked to explore.
settings.register_profile(
    "foundation",
    deadline=None,
    derandomize=not EXPLORES,
    max_examples=examples(100),
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("foundation")
# Hypothesis mixes in constants of this project's loaded modules: others in each worker.
setattr(providers, "is_local_module_file", lambda path: False)  # noqa: B010


def _log_writer(fd: int, *, delay: float, **options: Any) -> BackgroundWriter:
    """Write to standard error at once: 20 ms later pytest may have ended its capture of a test."""
    return BackgroundWriter(fd, delay=0.0 if fd == 2 else delay, **options)


setattr(logger, "BackgroundWriter", _log_writer)  # noqa: B010


def _inherit_no_signals() -> None:
    """Let children have the signals that `make test &` and `nohup` ignore; this process goes on."""
    if sys.platform == "win32":
        return
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.SIGINT, signal.SIGQUIT, signal.SIGHUP:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda number, frame: None)  # a program that is started has none


_inherit_no_signals()


def pytest_report_header() -> str:
    """Say how much the random tests try."""
    return f"size of the tests: {SIZE} (FOUNDATION_RT_TEST_SIZE=small, full or long)"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Spare the collector of garbage what the collection makes: it stays until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse names that differ from process to process: the workers of a run compare them."""
    wrong = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if wrong:
        raise pytest.UsageError(f"names with an address: give them ids: {wrong}")
    if sys.platform == "win32":
        for item in items:
            if need := need_of(item.nodeid):
                item.add_marker(pytest.mark.skip(reason=need))
        for test, every in SAMPLES.items():
            cases = [item for item in items if item.nodeid.startswith(test)]
            for number, item in enumerate(cases):
                if number % every:
                    item.add_marker(pytest.mark.skip(reason=f"one case in {every} is run"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many commands the journeys took, and how long."""
    for report in terminalreporter.stats.get("", ()):  # of the ends of tests
        for name, told in report.user_properties:
            if name == "journey":
                terminalreporter.write_line(f"{report.nodeid}: {told}")


def pytest_sessionfinish() -> None:
    """Leave nothing in the services."""
    drop_emptied_schemas()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """On Windows, do not import the files that need what it has not; `tests.windows` names them."""
    if sys.platform != "win32":
        return None
    return True if need_of(collection_path.relative_to(config.rootpath).as_posix()) else None


@pytest.fixture(scope="module", autouse=True)
def _freeze_imports() -> None:
    """Spare the collector of garbage, in later tests, what the modules before have imported."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _forget_programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Forget the programs that the test has imported: others have an `app`, too."""
    known = set(sys.modules)
    yield
    place = str(tmp_path_factory.getbasetemp())
    for name in sys.modules.keys() - known:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(place):
            del sys.modules[name]


@pytest.fixture
def clock() -> ManualClock:
    """Return the clock of a test in virtual time."""
    return ManualClock()


@pytest.fixture
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return what `pytest.mark.options` gives to the fixtures of a test."""
    mark = request.node.get_closest_marker("options")
    return {} if mark is None else dict(mark.kwargs)


@pytest.fixture
def forked() -> Iterator[None]:
    """Fork the servers that clients of the test start, for all but what ends with its client."""
    with fork_server.forking():
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function; leave any other to pytest."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    values = pyfuncitem.funcargs
    if pyfuncitem.get_closest_marker("virtual_time"):
        values.setdefault("clock", ManualClock())
    run_test(pyfuncitem.obj, pyfuncitem._fixtureinfo.argnames, values)
    return True
