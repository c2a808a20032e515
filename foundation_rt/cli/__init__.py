"""The command line, and the loading of the applications that it serves."""
