"""The HTTP/1.1 client of every part that asks a server: MCP, workers, OAuth, keys, OpenAPI.

`connection` is one connection, `network` makes them, `exchange` sends requests over them. Only
httptools is needed, which parses responses. Whoever asks says how long it waits and how much it
reads; no cookie is kept, no redirect followed, nothing unpacked and nothing sent twice.
"""
