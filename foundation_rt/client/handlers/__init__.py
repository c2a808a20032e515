"""The handlers of a server's requests: sampling, elicitation, roots."""
