"""Session state: what handlers keep for their client from call to call (CALL-30)."""
