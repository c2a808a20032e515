"""Language models behind one protocol, a module per provider (spec/host-llm.md)."""
