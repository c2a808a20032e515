"""From Python types to JSON Schemas, and from JSON values to values of these types.

One walk over a type yields both its schema and the function that turns an accepted JSON value into
a value of the type, so that the advertised schema and the arriving value cannot disagree.
`schema_deriver` is the walk and `type_schema` its result; `classes` and `unions` handle the types
that have to be seen as a whole, `constraints` the markers in ``Annotated``, `converters` the way
from a JSON value to a Python value. `function_signature` is the author's function, `annotations`
turns names into types, `docstrings` reads descriptions, and `binding` makes the function that is
called with the arguments.

A general converter would need its own walk over the same types, with rules of its own for classes
made inside functions, for unions and for numbers; and importing one takes longer than all of this:
15 to 20 ms of a cold start.
"""
