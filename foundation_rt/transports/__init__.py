"""Transports move bytes between a peer and a connection, and do all the waiting."""
