"""JSON Schema: dialects, patterns, formats, and validators with readable issues.

`foundation_rt.jsonschema.validation` is the entry point.
"""
