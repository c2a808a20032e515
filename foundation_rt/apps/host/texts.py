"""Texts that the host says to people in its own words."""

from __future__ import annotations

WELCOME = (
    "Hello! I'm an AI assistant that can help answer questions and use tools to get information."
)
RECONNECTED = "You are connected to this chat again."
RATE_LIMITED = "I'm currently processing too many requests. Please try again in a moment."
MAINTENANCE = "The system is currently undergoing maintenance. Some features may be unavailable."
STORE_AWAY = "The chats cannot be stored right now. Please try again in a moment."
INTERNAL_ERROR = "Something went wrong in the host. Please try again."
NO_ANSWER = "The model gave no answer. Please try again, or say it in other words."
UNREADABLE_CALL = "The model tried to use a tool, but its call could not be read. Please try again."
CALL_UNKNOWN = (
    "The outcome of this call is not known, because its turn ended while it ran. It may have"
    " happened. It is not repeated."
)
CALL_NOT_MADE = "This call was not made: its turn ended before somebody approved it."


def too_many_tools(total: int, most: int) -> str:
    """Return what people read if a model's vendor takes fewer tools than there are (TURN-85)."""
    return (
        f"There are {total} tools, and the model's provider takes {most}: with each message go"
        " those that fit best, and the model can find the others."
    )


def turn_timeout(seconds: float) -> str:
    """Return what people read if a turn took too long."""
    return f"This took longer than {seconds:g} seconds, so I stopped. Please try a smaller step."


def tool_error(tool_name: str, error: str) -> str:
    """Return what people read if a tool failed and the model says nothing about it."""
    return (
        f"I encountered an error when using the {tool_name} tool: {error}."
        " Let me try a different approach."
    )
