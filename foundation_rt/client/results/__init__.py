"""What servers list and answer, read."""
