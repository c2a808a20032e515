"""The settings of an operator, and their sources."""
