"""AACP: one participant of durable messaging, its decisions pure in `node` (spec/aacp.md)."""
