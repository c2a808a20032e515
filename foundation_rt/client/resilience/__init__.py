"""Deadlines, circuit breakers, retries, and the meaning of errors of the wire."""
