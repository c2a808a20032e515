"""The instructions of all servers as one text (GATE-12)."""

from __future__ import annotations

from collections.abc import Sequence

MAX_INSTRUCTION_BYTES = 16 * 1024

_CUT = "\n[cut]"


def merge_instructions(texts: Sequence[tuple[str, str]]) -> str | None:
    """Return the instructions of the servers, each below the id of its server.

    Args:
        texts: pairs of a server's id and its instructions, in the order of the file.

    Returns:
        At most `MAX_INSTRUCTION_BYTES` of UTF-8: where all are too long together, each is cut to an
        equal share, and what short ones leave goes to the others. None if no server has any.
    """
    sections = [(server, text.strip()) for server, text in texts if text.strip()]
    if not sections:
        return None
    heads = [f"# {server}\n\n" for server, _ in sections]
    fixed = sum(len(head.encode()) for head in heads) + 2 * (len(sections) - 1)
    bodies = [text for _, text in sections]
    shares = _shares([len(body.encode()) for body in bodies], MAX_INSTRUCTION_BYTES - fixed)
    merged = "\n\n".join(
        head + _cut(body, share) for head, body, share in zip(heads, bodies, shares, strict=True)
    )
    return _cut(merged, MAX_INSTRUCTION_BYTES)


def _shares(sizes: list[int], available: int) -> list[int]:
    """Return how many bytes each text may have: short ones all, the others an equal share."""
    shares = [0] * len(sizes)
    left, waiting = max(0, available), len(sizes)
    for index in sorted(range(len(sizes)), key=sizes.__getitem__):
        shares[index] = min(sizes[index], left // waiting)
        left, waiting = left - shares[index], waiting - 1
    return shares


def _cut(text: str, size: int) -> str:
    encoded = text.encode()
    if len(encoded) <= size:
        return text
    kept = encoded[: max(0, size - len(_CUT))].decode("utf-8", "ignore")
    return kept + _CUT if size >= len(_CUT) else ""
