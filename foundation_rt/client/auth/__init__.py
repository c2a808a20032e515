"""OAuth of the client: descriptions, discovery, logins, tokens (spec/client-auth.md)."""
