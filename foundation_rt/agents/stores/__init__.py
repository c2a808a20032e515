"""Ledgers: in memory, in a SQLite file, in PostgreSQL."""
