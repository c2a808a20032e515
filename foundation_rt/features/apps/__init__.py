"""Apps: pages in which hosts show the results of tools (SEP-1865; spec/apps.md)."""
