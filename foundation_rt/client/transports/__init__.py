"""Transports to a server: a child process, HTTP, a server in this process."""
