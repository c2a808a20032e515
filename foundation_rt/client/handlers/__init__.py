"""Answering what servers ask: sampling, elicitation, roots."""
