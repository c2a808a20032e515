"""What a server offers besides tools, and what all that can be listed has in common."""
