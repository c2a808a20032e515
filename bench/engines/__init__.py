"""The ledger in PostgreSQL beside other engines on the same server."""
