"""Requests that are handed to somebody else (spec/forwarding.md)."""
