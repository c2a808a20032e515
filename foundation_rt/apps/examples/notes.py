"""Notes: tools, a resource and a prompt. Begin here.

::

    foundation-rt serve foundation_rt.examples.notes
    foundation-rt call foundation_rt.examples.notes:server add_note 'text=Buy milk.'

The schemas of the tools come from the signatures, the descriptions from the docstrings.
"""

from __future__ import annotations

from itertools import count

from attrs import frozen

from foundation_rt import ErrorCode, Server, ToolError

server = Server("notes", version="1.0.0", instructions="Keep short notes for the user.")


@frozen
class Note:
    """A note.

    Attributes:
        id: given by the server.
        text: what the user wants to keep.
    """

    id: int
    text: str


notes: dict[int, Note] = {}
ids = count(1)


@server.tool(output_schema=True)
def add_note(text: str) -> Note:
    """Keep a note.

    Args:
        text: What to keep.
    """
    note = Note(next(ids), text)
    notes[note.id] = note
    server.list_changed("resources")
    return note


@server.tool
def find_notes(word: str) -> list[Note]:
    """Find the notes that have a word, in any case."""
    return [note for note in notes.values() if word.lower() in note.text.lower()]


@server.tool
def delete_note(note_id: int) -> str:
    """Delete a note."""
    if notes.pop(note_id, None) is None:
        raise ToolError(ErrorCode.NOT_FOUND, f"There is no note {note_id}.")
    return "deleted"


@server.resource("notes://all", mime_type="text/markdown")
def all_notes() -> str:
    """All notes, as a list in Markdown."""
    return "\n".join(f"- {note.text} (note {note.id})" for note in notes.values())


@server.resource("notes://{note_id}")
def one_note(note_id: int) -> str:
    """One note."""
    note = notes.get(note_id)
    if note is None:
        raise ToolError(ErrorCode.NOT_FOUND, f"There is no note {note_id}.")
    return note.text


@server.prompt
def sum_up(words: int = 50) -> str:
    """Ask for a summary of all notes."""
    return f"Sum up these notes in at most {words} words:\n\n{all_notes()}"


if __name__ == "__main__":
    server.run()
