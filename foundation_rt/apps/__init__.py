"""Applications on the runtime: they use its public names."""
