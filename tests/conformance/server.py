"""The server that the public conformance suite is run against.

Its tools, resources and prompts are those that the suite's scenarios ask for by name; each module
of `fixtures` lists its own.
"""

from __future__ import annotations

from foundation_rt import Server
from tests.conformance.fixtures import asking, content, progress, resources, schemas, skills, tasks

server = Server("foundation-rt-conformance", version="1.0.0")
for fixtures in (content, resources, schemas, progress, asking, tasks, skills):
    fixtures.add_to(server)
