"""From a message and a session to effects: pure decisions about what a peer says and may hear."""
