"""Conversations with a server, from handshake to end, and what outlives them."""
