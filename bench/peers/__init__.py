"""The runtime beside its peers: the same tool, the same client, each in its own environment."""
