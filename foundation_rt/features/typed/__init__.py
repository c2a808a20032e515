"""Plain functions as tools, resources, prompts and completions (spec/typed-tools.md)."""
