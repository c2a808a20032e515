"""`io.modelcontextprotocol/tasks`: calls that outlive their request (SEP-2663, spec/tasks.md)."""
