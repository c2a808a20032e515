"""Tools: their definitions, names, schemas, and the registry that finds them."""
