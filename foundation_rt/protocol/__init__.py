"""Wire shapes, framing and JSON-RPC: no role, no I/O; server and client share it."""
