"""JSON Schema: dialects, patterns, formats, and validators with readable issues.

`foundation_rt.base.jsonschema.compilation` is the entry point.
"""
