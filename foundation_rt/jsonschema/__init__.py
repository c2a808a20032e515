"""JSON Schema inside: dialects, patterns, formats, and what becomes of a value that does not fit.

`foundation_rt.jsonschema.validation` is the door to all of it; nothing else imports from here.
"""
