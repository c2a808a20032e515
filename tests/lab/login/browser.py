"""A browser of a person who agrees to everything: it follows redirects, and sends the first form.

As a program it opens the URL that it is given, so that it can be the `BROWSER` of one.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urljoin

import httpx2
from attrs import define, field

from tests.lab.waiting import PATIENCE, block_until

_ROOT = Path(__file__).parents[3]
_MOST_PAGES = 20


@define
class _Form(HTMLParser):
    """The first form of a page.

    Attributes:
        action: where it is sent; None without a form.
        values: what is sent, with the first button of those that agree.
    """

    action: str | None = field(default=None, init=False)
    values: dict[str, str] = field(factory=dict, init=False)

    def __attrs_pre_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form" and self.action is None:
            self.action = given.get("action", "")
        elif tag in ("input", "button") and given.get("name"):
            self.values.setdefault(given["name"], given.get("value", ""))


def walk(url: str, until: str | None = None) -> str:
    """Agree at every page from a URL on; return the address at which the browser ends.

    Args:
        until: the beginning of an address that is not opened any more; None: of none.
    """
    with httpx2.Client(timeout=PATIENCE, trust_env=False, verify=False) as browser:
        answer = _get(browser, url)
        for _ in range(_MOST_PAGES):
            if answer.is_redirect:
                url = urljoin(url, answer.headers["location"])
                if until is not None and url.startswith(until):
                    return url
                answer = _get(browser, url)
                continue
            form = _Form()
            form.feed(answer.text)
            if answer.status_code != 200 or form.action is None:
                return url
            url = urljoin(url, form.action)
            answer = browser.post(url, data=form.values)
    raise AssertionError(f"the pages do not end: {url}")


def _get(browser: httpx2.Client, url: str) -> httpx2.Response:
    """Open a page; some programs listen only after they have opened the first one."""

    def answer() -> httpx2.Response | None:
        with suppress(httpx2.ConnectError):
            return browser.get(url)
        return None

    found: httpx2.Response = block_until(answer, f"{url} answers")
    return found


def browser_of(folder: Path) -> dict[str, str]:
    """Return the variables with which programs open pages in this browser."""
    script = folder / "browser"
    words = f"{sys.executable} -m tests.lab.login.browser"
    # As a browser that runs already, it does not keep the program waiting.
    script.write_text(f'#!/bin/sh\ncd {_ROOT} && {words} "$1" >> {folder}/browser.log 2>&1 &\n')
    script.chmod(0o755)
    return {"BROWSER": f"{script} %s"}


if __name__ == "__main__":
    print(walk(sys.argv[1]))
