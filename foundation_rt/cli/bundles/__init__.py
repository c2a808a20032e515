"""MCP bundles (`.mcpb`), and `server.json` of the MCP registry (spec/packages.md)."""
