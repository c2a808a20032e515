"""stdio: lines of JSON-RPC on standard input and output (spec/process.md)."""
