"""The catalogs of a server: tools, resources, prompts, completions."""
