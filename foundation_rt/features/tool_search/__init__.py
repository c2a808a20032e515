"""Search among many tools, of a server and of a gateway (spec/tool-search.md)."""
