"""Definitions and results of other servers, as the revision of a client has them (FWD-04, FWD-05).

They go out as they came, unknown members included. Only what the revision lacks is left out, or
replaced as in results of our own (CONT-04). Nothing of a forwarder's is changed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from ...base.skill_format import SKILLS_GET
from ...protocol.content import AUDIO_URI
from ...protocol.methods import PROMPTS_GET, RESOURCES_READ, TOOLS_CALL
from ...protocol.peer import SERVER_INFO_KEY
from ...protocol.revisions import VARYING_MEMBERS

if TYPE_CHECKING:
    from ...kernel.replies import ResultWriter
    from ...protocol.peer import Peer
    from ...protocol.revisions import Revision
    from .forwarder import ListKind

Wire = Mapping[str, Any]

_CACHE_HINTS = ("ttlMs", "cacheScope")
_CACHED = (RESOURCES_READ, SKILLS_GET)

# The content kinds that some revisions lack; any other unknown kind goes out as it came.
_LATE_KINDS = frozenset(("audio", "resource_link"))


# -- definitions ---------------------------------------------------------------------------------


def adapt_entry(kind: ListKind, entry: Wire, revision: Revision) -> Wire:
    """Return a definition without the members that `revision` lacks."""
    return _ADAPT_ENTRY[kind](entry, revision)


def _tool(entry: Wire, revision: Revision) -> Wire:
    kept = revision.keep("tool", entry)
    schema = kept.get("outputSchema")
    is_object = type(schema) is dict and schema.get("type") == "object"
    if schema is not None and not is_object and not revision.any_structured_content:
        del kept["outputSchema"]  # results of this revision are objects (CONT-07)
    return kept


def _resource(entry: Wire, revision: Revision) -> Wire:
    return _annotated(revision.keep("resource", entry), revision)


def _prompt(entry: Wire, revision: Revision) -> Wire:
    kept = revision.keep("prompt", entry)
    arguments = kept.get("arguments")
    if type(arguments) is list and _lacks(revision, "prompt_argument"):
        kept["arguments"] = [
            revision.keep("prompt_argument", each) if type(each) is dict else each
            for each in arguments
        ]
    return kept


_ADAPT_ENTRY: dict[ListKind, Callable[[Wire, Revision], Wire]] = {
    "tools": _tool,
    "resources": _resource,
    "resourceTemplates": _resource,
    "prompts": _prompt,
    "skills": lambda entry, revision: entry,
}


# -- results -------------------------------------------------------------------------------------


def adapt_result(method: str, result: Wire, revision: Revision) -> dict[str, Any]:
    """Return a result without what `revision` lacks; a copy of its top level."""
    kept = dict(result)
    if method == TOOLS_CALL:
        if "structuredContent" in kept and not _is_allowed(kept["structuredContent"], revision):
            del kept["structuredContent"]
        _adapt_list(kept, "content", _block, revision)
    elif method == RESOURCES_READ:
        _adapt_list(kept, "contents", _contents, revision)
    elif method == PROMPTS_GET:
        _adapt_list(kept, "messages", _message, revision)
    return kept


def complete(results: ResultWriter, peer: Peer, method: str, kept: dict[str, Any]) -> None:
    """Give a result the members that the mode of the client asks of it, unless it has them.

    For a client of the handshake mode they are taken out (REV-06, REV-07).
    """
    meta = kept.get("_meta")
    meta = meta if type(meta) is dict else {}
    if peer.revision.is_stateless:
        kept.setdefault("resultType", "complete")
        kept["_meta"] = {SERVER_INFO_KEY: results.server_info(peer.revision), **meta}
        if method in _CACHED:
            hints = results.cache_hints(peer, differs=True)
            for name, value in hints.items():
                kept.setdefault(name, value)
        return
    kept.pop("resultType", None)
    if method in _CACHED:
        for name in _CACHE_HINTS:
            kept.pop(name, None)
    if SERVER_INFO_KEY in meta:
        kept["_meta"] = rest = {key: value for key, value in meta.items() if key != SERVER_INFO_KEY}
        if not rest:
            del kept["_meta"]


def _is_allowed(structured: Any, revision: Revision) -> bool:
    if revision.any_structured_content:
        return True
    return type(structured) is dict and revision.has("tool_result", "structuredContent")


def _adapt_list(
    kept: dict[str, Any], member: str, adapt: Callable[[Wire, Revision], Wire], revision: Revision
) -> None:
    items = kept.get(member)
    if type(items) is list and _changes_content(revision):
        kept[member] = [adapt(each, revision) if type(each) is dict else each for each in items]


def _message(message: Wire, revision: Revision) -> Wire:
    content = message.get("content")
    if type(content) is not dict:
        return message
    return {**message, "content": _block(content, revision)}


def _block(block: Wire, revision: Revision) -> Wire:
    """Return a content block as `revision` has it (CONT-04)."""
    kind = block.get("type")
    if type(kind) is str and kind in _LATE_KINDS and kind not in revision.content_kinds:
        block = _substitute(kind, block)
        kind = block["type"]
    kept = revision.keep("resource" if kind == "resource_link" else "content", block)
    resource = kept.get("resource")
    if type(resource) is dict:
        kept["resource"] = _contents(resource, revision)
    return _annotated(kept, revision)


def _substitute(kind: str, block: Wire) -> Wire:
    """Return the block that stands for one of a kind that the revision lacks, as `content` has."""
    annotations = {name: block[name] for name in ("annotations",) if name in block}
    if kind == "resource_link":
        return {"type": "text", "text": block.get("uri", ""), **annotations}
    blob = {"uri": AUDIO_URI, "mimeType": block.get("mimeType"), "blob": block.get("data")}
    return {"type": "resource", "resource": blob, **annotations}


def _contents(contents: Wire, revision: Revision) -> Wire:
    return revision.keep("contents", contents)


def _annotated(kept: dict[str, Any], revision: Revision) -> dict[str, Any]:
    annotations = kept.get("annotations")
    if type(annotations) is dict:
        kept["annotations"] = revision.keep("annotations", annotations)
    return kept


def _lacks(revision: Revision, shape: str) -> bool:
    return VARYING_MEMBERS[shape] > revision.members[shape]


@cache
def _changes_content(revision: Revision) -> bool:
    """Return whether any content block or contents may differ in `revision`."""
    shapes = ("content", "contents", "annotations", "resource")
    return not revision.content_kinds >= _LATE_KINDS or any(
        _lacks(revision, shape) for shape in shapes
    )
