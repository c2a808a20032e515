"""The tools, resources, prompts and results of a server, read from the wire."""
