"""Structured log records: how they are made, redacted and written."""
