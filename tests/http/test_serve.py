"""Serving over HTTP, without a process of its own."""

from __future__ import annotations

import gc
import threading

import pytest

from foundation_rt import Server, UsageError
from foundation_rt.http.serve import collecting_rarely

PATIENCE = 60.0


@pytest.mark.rule("HTTP-22")
def test_serving_outside_main_thread_is_refused() -> None:
    server, raised = Server("s"), list[str]()

    def serve() -> None:
        try:
            server.run_http(port=0, no_auth=True)
        except UsageError as error:
            raised.append(str(error))

    thread = threading.Thread(target=serve)
    thread.start()
    thread.join(PATIENCE)
    assert len(raised) == 1
    assert "main thread" in raised[0] and "asgi_app()" in raised[0]


def test_gc_settings_are_restored() -> None:
    before = gc.get_threshold()
    with pytest.raises(ZeroDivisionError), collecting_rarely():
        assert gc.get_threshold()[0] > before[0]
        assert gc.get_freeze_count() > 0
        raise ZeroDivisionError
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
