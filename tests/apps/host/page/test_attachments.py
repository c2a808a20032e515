"""What goes with a message: files and pictures that are chosen, dropped and pasted; its model."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.apps.host.page.test_chat import field, say
from tests.lab.host.process import host_process
from tests.lab.host.scripted_host import ScriptedHost
from tests.lab.pages.chromium import shot, wait_until, watched_page

PIXEL = b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)

GIVE = """([how, name, type, data]) => {
  const transfer = new DataTransfer();
  const bytes = Uint8Array.from(atob(data), (each) => each.charCodeAt(0));
  transfer.items.add(new File([bytes], name, { type }));
  const event = how === "drop"
    ? new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true })
    : new ClipboardEvent("paste", { clipboardData: transfer, bubbles: true, cancelable: true });
  document.getElementById("say").dispatchEvent(event);
}"""


@pytest.fixture
def chat(browser: Browser, tmp_path: Path) -> Iterator[Page]:
    """Open the page of a host process whose model repeats what it reads."""
    script = [{"answers": [[{"echo": "user"}]]}]
    with host_process(tmp_path, script=script) as host, watched_page(browser, host.url) as watched:
        watched.page.get_by_role("button", name="Servers").or_(
            watched.page.get_by_role("button", name="1 server")
        ).first.wait_for()
        wait_until(watched.page, "document.querySelector('.welcome h2') !== null")
        expect(watched.page.get_by_role("list", name="Servers")).to_be_visible()
        yield watched.page


def give(page: Page, how: str, name: str, kind: str, data: bytes) -> None:
    """Drop or paste a file."""
    page.evaluate(GIVE, [how, name, kind, b64encode(data).decode()])


@pytest.mark.rule("HPAGE-52")
def test_files_and_pictures_go_with_a_message(chat: Page) -> None:
    with chat.expect_file_chooser() as chooser:
        chat.get_by_role("button", name="Attach files").click()
    notes = {"name": "notes.md", "mimeType": "text/markdown", "buffer": b"# Notes\n"}
    chooser.value.set_files([notes])  # type: ignore[arg-type]
    give(chat, "paste", "pixel.png", "image/png", PIXEL)
    give(chat, "drop", "gone.txt", "text/plain", b"not this")
    expect(chat.get_by_role("list", name="Attachments").locator("li")).to_have_count(3)
    chat.get_by_role("button", name="Remove gone.txt").click()
    field(chat).fill("read these")
    shot(chat, "attachments-1")
    chat.keyboard.press("Enter")
    for _ in range(2):
        expect(chat.locator(".user .attached li")).to_have_count(2)
        expect(chat.locator(".user .bubble")).to_have_text("read these")
        expect(chat.locator(".user")).to_contain_text("notes.md")
        expect(chat.get_by_role("img", name="pixel.png")).to_be_visible()
        expect(chat.locator(".assistant .code")).to_contain_text("# Notes")
        shot(chat, "attachments-2")
        chat.reload()
    chat.get_by_role("button", name="Answer again").click()
    expect(chat.get_by_role("group", name="Branches")).to_have_text("2 of 2")
    expect(chat.locator(".user .attached li")).to_have_count(2)
    expect(chat.locator(".assistant .code")).to_contain_text("# Notes")


@pytest.mark.rule("HPAGE-52")
def test_a_large_picture_is_made_smaller(chat: Page) -> None:
    size = chat.evaluate("""async () => {
      const canvas = Object.assign(document.createElement("canvas"), { width: 1700, height: 400 });
      const context = canvas.getContext("2d");
      const noise = context.createImageData(1700, 400);
      for (let at = 0, seed = 1; at < noise.data.length; at += 1) {
        seed = (seed * 16807) % 2147483647;
        noise.data[at] = at % 4 === 3 ? 255 : seed & 255;
      }
      context.putImageData(noise, 0, 0);
      const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
      const transfer = new DataTransfer();
      transfer.items.add(new File([blob], "large.png", { type: "image/png" }));
      document.body.dispatchEvent(
        new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true })
      );
      return blob.size;
    }""")
    assert size > 700 * 1024
    expect(chat.get_by_role("list", name="Attachments").locator("li")).to_have_count(1)
    say(chat, "see")
    picture = chat.get_by_role("img", name="large.png")
    expect(picture).to_be_visible()
    assert 100 <= picture.evaluate("(image) => image.naturalWidth") <= 1568
    assert str(picture.get_attribute("src")).startswith("data:image/jpeg;base64,")


@pytest.mark.rule("HPAGE-52")
def test_what_cannot_be_attached_is_said(page: Page, host: ScriptedHost) -> None:
    host.status = {"model": "m", "servers": [], "takesPictures": False}
    page.reload()
    expect(page.get_by_role("heading", name="Chat with m", exact=True)).to_be_visible()
    status = page.get_by_role("status").filter(has_text=":")
    for name, kind, data, words in [
        ("a.bin", "", b"\xff\xfe\x00", "this is neither"),
        ("a.png", "image/png", b"no picture", "cannot be read"),
        ("a.png", "image/png", PIXEL, "takes no pictures"),
        ("a.txt", "text/plain", b"a" * 800_000, "at most 700 KiB"),
    ]:
        give(page, "drop", name, kind, data)
        expect(status).to_contain_text(words)
    for number in range(9):
        give(page, "drop", f"{number}.txt", "text/plain", b"x")
        expect(page.get_by_role("button", name="Remove")).to_have_count(min(number + 1, 8))
    expect(status).to_contain_text("At most 8 files")
    say(page, "read")
    said = host.next_said("message")
    assert [each["name"] for each in said["attachments"]] == [f"{each}.txt" for each in range(8)]
    error = {"code": "RATE_LIMITED", "message": "Too many.", "id": said["id"]}
    host.send({"type": "error", "payload": error})
    page.get_by_role("button", name="Edit", exact=True).click()
    expect(page.get_by_role("button", name="Remove")).to_have_count(8)


@pytest.mark.rule("HPAGE-52")
def test_bytes_of_an_edited_message_count(page: Page, host: ScriptedHost) -> None:
    say(page, "one")
    picture = {"name": "p.png", "mimeType": "image/png", "data": b64encode(PIXEL).decode()}
    kept = {
        "files": [{"name": "a.txt", "bytes": 700 * 1024 - len(PIXEL) - 2}],
        "pictures": [picture],
    }
    host.event("user", {"text": "one", "messageId": host.next_said("message")["id"], **kept})
    page.get_by_role("button", name="Edit this message").click()
    for name, count in (("b.txt", 3), ("c.txt", 4), ("d.txt", 4)):
        give(page, "drop", name, "text/plain", b"x")
        expect(page.get_by_role("button", name="Remove")).to_have_count(count)
    expect(page.get_by_role("status").filter(has_text="d.txt")).to_contain_text("at most 700 KiB")


@pytest.mark.rule("HPAGE-53")
def test_a_model_is_chosen(page: Page, host: ScriptedHost) -> None:
    host.models = ["large", "scripted", "small"]
    page.reload()
    model = page.get_by_label("Model")
    expect(model.locator("option")).to_have_text(["scripted", "large", "small"])
    say(page, "one")
    assert "model" not in host.next_said("message")
    model.select_option("large")
    say(page, "two")
    assert host.next_said("message")["model"] == "large"
    page.reload()
    expect(model).to_have_value("large")
    host.models = ["scripted"]
    page.reload()
    expect(page.locator(".welcome, .items").first).to_be_attached()
    expect(model).to_be_hidden()
