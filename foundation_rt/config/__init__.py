"""What an operator can set, and where it comes from."""
