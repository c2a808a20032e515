"""Serving over HTTP, as far as it takes no process of its own."""

from __future__ import annotations

import threading

import pytest

from foundation_rt import Server, UsageError

PATIENCE = 10.0


@pytest.mark.rule("HTTP-22")
def test_what_is_not_the_main_thread_is_told_what_to_do_instead() -> None:
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
