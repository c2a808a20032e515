"""The tools of a server, their calls, and lists in pages."""
