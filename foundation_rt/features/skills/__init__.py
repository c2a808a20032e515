"""Skills: folders of instructions that a server offers as resources (SEP-2640; spec/skills.md)."""
