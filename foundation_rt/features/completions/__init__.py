"""Completions: values of an argument of a prompt, or of a template (spec/completion.md)."""
