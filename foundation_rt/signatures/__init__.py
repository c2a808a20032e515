"""From Python types to JSON Schemas, and from JSON values to values of those types.

One walk over a type yields both its schema and the function that turns an accepted JSON value into
a value of the type, so that what is advertised and what arrives cannot disagree. `deriver` is the
walk and `form` what it yields; `classes` and `unions` are the types that need a look at the whole,
`constraints` the markers in ``Annotated``, `values` the way from a JSON value to a Python value.
`subject` is the function that an author gave, `annotations` turns names into types, `docstrings`
reads descriptions, and `binding` makes the function that is called with the arguments.

A general converter would need its own walk over the same types, with rules of its own for classes
made inside functions, for unions and for numbers; and importing one takes longer than all of this:
15 to 20 ms of a cold start.
"""
