"""The catalog of tools, and what the catalogs of features are made of."""
