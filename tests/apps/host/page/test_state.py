"""Frames to the state of a chat, as the page's own modules do it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import Page

Frame = dict[str, Any]

REPLAY = """async (deliveries) => {
  const { EMPTY, receive } = await import("/chat_state.js");
  const gaps = [];
  let state = { ...EMPTY, sessionId: "s" };
  for (const { from, frames } of deliveries) {
    for (const frame of frames) {
      state = receive(state, frame);
      if (state.hasGap) break;
    }
    gaps.push(state.hasGap);
    state = { ...state, hasGap: false };
  }
  return { state, gaps };
}"""


IDS = st.sampled_from(["a", "b", "c"])
PAYLOADS = st.one_of(
    st.builds(
        lambda id, content, done: ("text", {"messageId": id, "content": content, "done": done}),
        IDS,
        st.text(max_size=3),
        st.booleans(),
    ),
    st.builds(lambda id: ("user", {"messageId": id, "text": "hi"}), IDS),
    st.builds(
        lambda id, state, awaiting: (
            "status",
            {
                "callId": id,
                "tool": "s:t",
                "state": state,
                "awaiting": awaiting,
                "data": {"arguments": {"n": 1}}
                if state == "processing"
                else {"result": {"content": []}},
            },
        ),
        IDS,
        st.sampled_from(["processing", "complete"]),
        st.sampled_from([None, "approval"]),
    ),
    st.builds(
        lambda id, decision: (
            "approval",
            {"callId": id, "decision": decision}
            if decision
            else {"callId": id, "kind": "tool", "server": "s", "tool": "t", "arguments": {}},
        ),
        IDS,
        st.sampled_from([None, "once", "deny", "expired"]),
    ),
    st.builds(
        lambda id, action: (
            "question",
            {"questionId": id, "action": action}
            if action
            else {"questionId": id, "server": "s", "kind": "form", "message": "?", "schema": {}},
        ),
        IDS,
        st.sampled_from([None, "accept", "cancel"]),
    ),
    st.builds(
        lambda state: ("turn", {"state": state, "usage": {"promptTokens": 2}}),
        st.sampled_from(["started", "finished", "stopped", "failed", "interrupted"]),
    ),
)


@st.composite
def deliveries(draw: st.DrawFn) -> tuple[list[Frame], list[Frame]]:
    """Draw events, and how they arrive: replayed from anywhere that is known, cut anywhere."""
    drawn = draw(st.lists(st.tuples(PAYLOADS, st.sampled_from(["t1", "t2"])), max_size=25))
    frames = [
        {"type": kind, "payload": payload, "seq": seq, "turnId": turn}
        for seq, ((kind, payload), turn) in enumerate(drawn, 1)
    ]
    parts, known = [], 0
    while known < len(frames):
        start = draw(st.integers(0, known))
        end = draw(st.integers(start, len(frames)))
        parts.append({"from": start, "frames": frames[start:end]})
        known = max(known, end)
    return frames, parts


@pytest.mark.rule("HPAGE-02")
def test_any_cuts_and_replays_lead_to_the_same_state(modules: Page) -> None:
    @given(deliveries())
    def same(drawn: tuple[list[Frame], list[Frame]]) -> None:
        frames, parts = drawn
        whole = modules.evaluate(REPLAY, [{"from": 0, "frames": frames}])
        cut = modules.evaluate(REPLAY, parts)
        assert cut["state"] == whole["state"]
        assert whole["state"]["seq"] == len(frames)
        assert not any(cut["gaps"])

    same()


@pytest.mark.rule("HPAGE-02")
def test_an_event_that_comes_too_early_changes_nothing_but_is_noticed(modules: Page) -> None:
    frame = {"type": "user", "payload": {"messageId": "a", "text": "hi"}, "seq": 2}
    after = modules.evaluate(REPLAY, [{"from": 1, "frames": [frame]}])
    assert after["gaps"] == [True]
    assert (after["state"]["seq"], after["state"]["items"]) == (0, [])


def state_after(modules: Page, *frames: Frame) -> Any:
    """Return the state after frames."""
    return modules.evaluate(REPLAY, [{"from": 0, "frames": list(frames)}])["state"]


HISTORY = {
    "type": "history",
    "payload": {
        "seq": 40,
        "turn": None,
        "messages": [
            {"id": "m1", "role": "user", "content": "add"},
            {
                "id": "m2",
                "role": "assistant",
                "toolName": "demo:add",
                "callId": "c1",
                "data": {"arguments": {"a": 1}},
            },
            {
                "id": "m3",
                "role": "tool",
                "toolName": "demo:add",
                "callId": "c1",
                "kind": "complete",
                "data": {"error": {"code": "X", "message": "no"}},
                "metadata": {"isError": True, "durationMs": 5},
            },
            {
                "id": "m4",
                "role": "assistant",
                "toolName": "demo:rm",
                "callId": "c2",
                "data": {"arguments": {}},
            },
            {"id": "m5", "role": "assistant", "content": "done"},
        ],
    },
}


@pytest.mark.rule("HPAGE-03")
def test_history_replaces_the_state_and_shows_calls_without_outcome_as_unknown(
    modules: Page,
) -> None:
    before = {"type": "user", "payload": {"messageId": "z", "text": "gone"}, "seq": 1}
    state = state_after(modules, before, HISTORY)
    kinds = [(item["kind"], item["id"], item.get("phase")) for item in state["items"]]
    assert kinds == [
        ("user", "m1", None),
        ("call", "c1", "complete"),
        ("call", "c2", "unknown"),
        ("text", "m5", None),
    ]
    assert state["items"][1]["error"] == {"code": "X", "message": "no"}
    assert state["items"][1]["durationMs"] == 5
    assert state["seq"] == 40


@pytest.mark.rule("HPAGE-11")
def test_call_that_was_stopped_has_not_failed(modules: Page) -> None:
    state = """async (code) => (await import("/cards.js")).stateOf(
      { phase: "complete", isError: true, error: { code }, approval: null })"""
    states = [modules.evaluate(state, code) for code in ("STOPPED", "TIMEOUT")]
    assert states == ["stopped", "failed"]


@pytest.mark.rule("HPAGE-03")
def test_history_shows_decisions_and_ends_as_before(modules: Page) -> None:
    outcome = {
        "id": "m3",
        "role": "tool",
        "toolName": "s:t",
        "callId": "c",
        "data": {"error": {"code": "STOPPED", "message": "stopped"}},
        "metadata": {"turn": "t1", "decision": "once", "ending": {"state": "stopped"}},
    }
    call = {"id": "m2", "role": "assistant", "toolName": "s:t", "callId": "c", "data": {}}
    history = {"type": "history", "payload": {"seq": 9, "messages": [call, outcome]}}
    shown, ending = state_after(modules, history)["items"]
    assert (shown["approval"]["decision"], shown["approval"]["server"]) == ("once", "s")
    assert (ending["kind"], ending["id"], ending["state"]) == ("ending", "t1", "stopped")


@pytest.mark.rule("HPAGE-03")
def test_history_of_a_running_turn_goes_on_with_its_events(modules: Page) -> None:
    running = {
        "type": "history",
        "payload": {
            "seq": 7,
            "turn": {"turnId": "t1", "state": "started"},
            "messages": [
                {"id": "m1", "role": "assistant", "toolName": "s:t", "callId": "c", "data": {}},
                {"id": "m2", "role": "assistant", "content": "Hel"},
            ],
            "calls": [{"state": "processing", "tool": "s:t", "callId": "c", "awaiting": "answer"}],
            "questions": [
                {"questionId": "q", "server": "s", "kind": "form", "message": "?", "schema": {}}
            ],
        },
    }
    text = {"content": "lo", "messageId": "m2", "done": True}
    state = state_after(
        modules, running, {"type": "text", "payload": text, "seq": 8, "turnId": "t1"}
    )
    call, words, question = state["items"]
    assert (call["phase"], call["awaiting"]) == ("processing", "answer")
    assert (words["text"], words["isDone"]) == ("Hello", True)
    assert question["action"] is None
    assert state["turn"]["turnId"] == "t1"


@pytest.mark.rule("HPAGE-30")
def test_a_session_that_the_host_does_not_know_leaves_what_is_shown(modules: Page) -> None:
    said = {"type": "user", "payload": {"messageId": "a", "text": "hi"}, "seq": 1}
    new = {"type": "connection", "payload": {"state": "connected", "sessionId": "other"}}
    state = state_after(modules, said, new)
    assert [item["kind"] for item in state["items"]] == ["user", "notice"]
    assert (state["sessionId"], state["seq"]) == ("other", 0)


@pytest.mark.rule("HPAGE-04")
def test_delays_double_up_to_30_s_and_are_drawn_from_the_upper_half(modules: Page) -> None:
    delays = modules.evaluate("""async () => {
      const { delayBefore } = await import("/connection.js");
      return [1, 2, 3, 7, 500].map((n) => [delayBefore(n, 0), delayBefore(n, 1)]);
    }""")
    assert delays == [
        [250, 500],
        [500, 1000],
        [1000, 2000],
        [15_000, 30_000],
        [15_000, 30_000],
    ]


@pytest.mark.rule("HPAGE-20")
def test_sentences_are_read_when_they_are_complete(modules: Page) -> None:
    heard = modules.evaluate("""async () => {
      const { SentenceReader } = await import("/speech.js");
      const reader = new SentenceReader();
      const whole = "It is **4 degrees**. And wet";
      const texts = [5, 19, 24, 28].map((length) => whole.slice(0, length));
      return texts.map((text, at) => reader.next("a", text, at === 3));
    }""")
    assert heard == ["", "", "It is 4 degrees.", "And wet"]


@pytest.mark.rule("HPAGE-20")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Call `snake_case` and my_own_name. ", "Call snake_case and my_own_name."),
        ("a > b, 3 * 4 | 5 ~ 6 # 7. ", "a > b, 3 * 4 | 5 ~ 6 # 7."),
        ("**One. Two.** ", "One. Two."),
        ("# Head\n- one\n- two\n\n[a](https://e.org) ", "Head one two a"),
        ("```py\nx = a_b * c; y = 1\n```\n", "x = a_b * c; y = 1"),
    ],
)
def test_words_are_read_as_they_are(modules: Page, text: str, words: str) -> None:
    heard = modules.evaluate(
        """async (text) => {
          const { SentenceReader } = await import("/speech.js");
          const reader = new SentenceReader();
          const said = [];
          for (let length = 1; length <= text.length; length += 1)
            said.push(reader.next("a", text.slice(0, length), length === text.length));
          return said.filter(Boolean).join(" ");
        }""",
        text,
    )
    assert heard == words


@pytest.mark.rule("HPAGE-18")
@pytest.mark.parametrize(
    ("states", "text"),
    [
        (["ready", "needs login"], "1 needs a login"),
        (["needs login", "needs login"], "2 need a login"),
        (["needs login", "lost"], "2 servers down"),
    ],
)
def test_servers_that_cannot_be_used_are_summed_up(
    modules: Page, states: list[str], text: str
) -> None:
    servers = [{"id": str(number), "state": state} for number, state in enumerate(states)]
    found = modules.evaluate(
        """(servers) => import("/servers_panel.js").then(
          (panel) => panel.summary(panel.described(servers)))""",
        servers,
    )
    assert (found["text"], found["state"]) == (text, "bad")


@pytest.mark.rule("HPAGE-19")
def test_examples_take_one_tool_of_each_server_at_first(modules: Page) -> None:
    tool = {
        "name": "add_all",
        "description": "Add.\nMore.",
        "inputSchema": {
            "required": ["a", "how"],
            "properties": {"a": {"type": "integer"}, "how": {"enum": ["up", "down"]}},
        },
    }
    old = {"name": "old", "description": "Add. DEPRECATED: use add_all."}
    servers = [
        {"id": "one", "state": "ready", "tools": [old, tool, "second"]},
        {"id": "two", "state": "ready", "tools": ["third"]},
        {"id": "off", "state": "failed", "tools": ["never"]},
        {"id": "count", "state": "ready", "tools": 3},
    ]
    found = modules.evaluate(
        """async (servers) => {
          const { described } = await import("/servers_panel.js");
          return (await import("/welcome.js")).examples(described(servers));
        }""",
        servers,
    )
    assert [each["text"] for each in found] == [
        '/one:add_all a=2 how="up"',
        "/two:third",
        "/one:second",
    ]
    assert found[0] == {"title": "add all", "detail": "Add.", "text": found[0]["text"]}


@pytest.mark.rule("HPAGE-51", "HPAGE-50")
def test_branch_from_an_older_turn_is_shown_alone_until_that_has_come(modules: Page) -> None:
    """The host has the turns a, b, c, d after a, and e; the page has c, d and e."""
    shown = """({ items, previous }) => import("./branches.js").then((module) => {
      const { items: shown, last, forks } = module.branchOf(items, new Map(), previous);
      const before = module.messageBefore(shown, shown[0].id, previous);
      return [shown.map(({ id }) => id).join(""), last, [...forks.keys()].join(""), before];
    })"""
    turns = [{"kind": "user", "id": name} for name in "abcde"]
    turns[3]["after"] = "a"
    for items, previous, expected in (
        (turns[2:], "b", ["de", "e", "", "a"]),
        (turns[2:3], "b", ["c", "c", "", "b"]),
        (turns[3:], "a", ["de", "e", "", "a"]),
        ([{"kind": "text", "id": "x"}, *turns[4:]], "d", ["xe", "e", "", "d"]),
        ([{**turns[4], "after": None}], "d", ["e", "e", "", None]),
        (turns, None, ["ade", "e", "d", None]),
    ):
        assert modules.evaluate(shown, {"items": items, "previous": previous}) == expected


@pytest.mark.rule("HPAGE-03")
def test_chat_under_another_id_goes_on(modules: Page) -> None:
    payload = {"state": "reconnected", "sessionId": "its id"}
    state = state_after(modules, HISTORY, {"type": "connection", "payload": payload})
    assert (state["sessionId"], state["seq"]) == ("its id", 40)
