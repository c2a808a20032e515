"""Sessions with a server, from handshake to end, and the subscriptions that outlive them."""
