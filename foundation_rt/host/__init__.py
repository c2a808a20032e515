"""A chat in which a model uses the tools of many MCP servers (spec/host.md)."""
