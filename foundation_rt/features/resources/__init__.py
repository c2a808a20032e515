"""Resources: what a client can read, by URIs and by templates of URIs (spec/mcp-resources.md)."""
