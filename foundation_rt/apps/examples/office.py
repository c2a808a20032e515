"""An office of agents: a clerk, an archive, and a tool that sends a form through both.

::

    foundation-rt serve foundation_rt.examples.office

An agent has a state of its own and takes one message at a time. Agents may ask each other; a
message that would wait for its own sender is refused.
"""

from __future__ import annotations

from typing import Any

from foundation_rt import AgentContext, AgentMessage, ErrorCode, Server, ToolError

# Some hosts take no "/" in the names of tools.
server = Server("office", version="1.0.0", config={"tools": {"name_separator": "_"}})


async def archive(message: AgentMessage, context: AgentContext) -> dict[str, Any]:
    """Keep what it is given under a number."""
    files = context.state.setdefault("files", [])
    if message.type == "file":
        files.append(message.payload)
        return {"number": len(files)}
    number = int(message.payload)
    if not 1 <= number <= len(files):
        raise ToolError(ErrorCode.NOT_FOUND, f"There is no file {number}.")
    return {"number": number, "form": files[number - 1]}


async def clerk(message: AgentMessage, context: AgentContext) -> dict[str, Any]:
    """Check a form, and have the archive keep it."""
    form = message.payload
    if not form.get("signed"):
        raise ToolError(ErrorCode.INVALID_ARGUMENT, "The form is not signed.")
    context.state["checked"] = context.state.get("checked", 0) + 1
    kept = await server.agents.send_message("archive", AgentMessage("file", form))
    return {"checked": context.state["checked"], "number": kept["number"]}


server.agents.register_agent("archive", archive)
server.agents.register_agent("clerk", clerk)


@server.tool
async def hand_in(name: str, signed: bool) -> dict[str, int]:
    """Hand in a form; return its number in the archive.

    Args:
        name: Of the person.
        signed: Whether there is a signature.
    """
    form = {"name": name, "signed": signed}
    done: dict[str, int] = await server.agents.send_message("clerk", AgentMessage("form", form))
    return done


@server.tool
async def look_up(number: int) -> dict[str, Any]:
    """Return a form from the archive."""
    message = AgentMessage("find", number)
    found: dict[str, Any] = await server.agents.send_message("archive", message)
    return found


if __name__ == "__main__":
    server.run()
