"""Several worker processes, or several hosts: what they know and hand on."""
