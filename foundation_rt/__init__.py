"""A hand-rolled MCP runtime."""
