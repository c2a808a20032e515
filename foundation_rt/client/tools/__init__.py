"""Tools as they were listed, their calls, and lists in pages."""
