"""The decisions: from a message and a session to effects; a call from its ids to its reply."""
