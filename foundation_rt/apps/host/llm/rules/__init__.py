"""Answers by rules, for a host without key or network (LLM-80 to LLM-88)."""
