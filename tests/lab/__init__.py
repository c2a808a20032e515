"""What tests are made with, one line a folder. A test imports it; it imports no test.

- `servers`: a server of ours: without I/O, in memory, as ASGI, in a process, forked, over HTTP
- `apps`: the programs that those serve, and servers in plain Python
- `peers`: who speaks with ours: servers of a script (memory, stdio, HTTP), vectors, raw HTTP
- `agents`: AACP: coordinators and the network between them, processes to kill, ledgers that fail
- `host`: the chat host: a chat in memory, a server of its page, a process, a script for its page
- `models`: services of language models: their dialects, answers, failures, and a plugin's model
- `login`: who logs people in: authorization servers, identity providers, browsers, clients
- `places`: databases and brokers, servers of a test's own, a cable before any server
- `clock`: virtual time, a scheduler by hand, interruptions, and work counted instead of timed
- `programs`: commands, processes, terminals, journeys, Python and Node, pipes, Windows
- `pages`: Chromium, and what it must not find on a page
- `checks`: what is looked at after a test: logs, leaks, schemas, official types, imports
- `values`: any JSON, hostile values, hostile bytes
- `typed`: files that only type checkers read
- `sizes`: how much random tests try
- `async_tests`: how coroutine tests run; `waiting`: how a test waits
"""
