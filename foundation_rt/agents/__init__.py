"""Agents in one process: handlers with a state of their own that take messages one at a time."""

from .coordinator import AgentCoordinator as AgentCoordinator
from .messages import AgentContext as AgentContext
from .messages import AgentMessage as AgentMessage
