"""What moves bytes between a peer and a connection, and owns the waiting."""
