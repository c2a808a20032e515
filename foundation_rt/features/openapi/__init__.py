"""HTTP APIs as tools, from their OpenAPI documents (spec/openapi.md; extra `openapi`).

`documents` reads the text of a document and follows its references, `operations` has its operations
as plain values. `schemas` and `arguments` make the arguments of tools. `requests` makes the request
of a call, with `encoding` and `security`; none of these does I/O. `upstream` sends it, and
`responses` makes a result of the response. `api` is all of it together: what a server registers.
"""
