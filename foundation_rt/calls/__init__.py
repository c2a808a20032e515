"""One call of a handler, from its ids to its reply and its record: pure decisions."""
