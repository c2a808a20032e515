"""The command line, and the loading of what it serves."""
