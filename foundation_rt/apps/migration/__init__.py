"""Programs of other MCP libraries, rewritten for this one (spec/migration.md).

`migrate_source` takes the text of one file. It changes names where their meaning stays, and lists
the rest for a person. It needs libcst (extra `migrate`), so formatting and comments stay.
"""
