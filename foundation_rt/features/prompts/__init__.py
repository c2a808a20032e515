"""Prompts: messages to a model, made for a user who asks for them (spec/prompts.md)."""
