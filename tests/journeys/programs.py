"""The first call with each extra that a program imports: programs for an environment that has it.

Each is run with `HEAD` before it, and with addresses of servers as its arguments.
"""

HEAD = """
import asyncio, os, sys
from foundation_rt import AgentMessage, Server
from foundation_rt.client import connect
from foundation_rt.testing import TestClient

address = sys.argv[1:]


async def ask(server, tool, **arguments):
    async with TestClient(server) as client:
        return await client.call(tool, **arguments)


async def send(server):
    server.agents.register_agent("clerk", clerk)
    async with TestClient(server):
        return await server.agents.send_request("clerk", AgentMessage("form", "A38"))


async def clerk(message, context):
    return message.payload
"""

PROGRAMS = {
    "client-oauth": """
from foundation_rt.client import ClientCredentials

async def call(url, issuer, key):
    credentials = ClientCredentials("me", private_key=open(key).read(), issuer=issuer)
    async with connect(url, auth=credentials) as client:
        return (await client.call("echo")).text

assert asyncio.run(call(*address)) == "done"
""",
    "jsonschema": """
server = Server("pairs")

@server.tool
def second(of: tuple[int, str]) -> str:
    return of[1]

assert asyncio.run(ask(server, "second", of=[1, "b"])) == "b"
""",
    "metrics": """
server = Server("counted", config={"telemetry": {"metrics": True}})
asyncio.run(ask(server, "health"))
assert b"foundation_rt_calls_total" in server.runtime.metrics.render()[1]
""",
    "nats": """
settings = {"transport": address[0], "store": "sqlite:office.db", "name": "first-call"}
assert asyncio.run(send(Server("office", config={"aacp": settings}))) == "A38"
""",
    "openapi": """
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

class Pets(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b'{"name": "Rex"}')

pets = HTTPServer(("127.0.0.1", 0), Pets)
Thread(target=pets.handle_request).start()
Path("pets.yaml").write_text('''
openapi: 3.1.0
info: {title: Pets, version: "1"}
paths:
  /pets/1:
    get:
      operationId: first
      responses: {"200": {description: A pet.}}
''')
server = Server.from_openapi("pets.yaml", base_url=f"http://127.0.0.1:{pets.server_port}")
assert "Rex" in str(asyncio.run(ask(server, "first")))
""",
    "otel": """
server = Server("traced", config={"telemetry": {"tracing": True}})
assert asyncio.run(ask(server, "health"))["status"] == "healthy"
""",
    "postgres": """
from foundation_rt.agents import PostgresAACPPersistenceAdapter

server = Server("office")
server.agents.store = PostgresAACPPersistenceAdapter(address[0], schema=address[1])
assert asyncio.run(send(server)) == "A38"
""",
    "redis": """
from foundation_rt import ToolContext

message = (
    b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion":'
    b' "2025-11-25", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}}'
)
headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
scope = {
    "type": "http", "http_version": "1.1", "method": "POST", "path": "/mcp", "query_string": b"",
    "headers": [(b"host", b"localhost"), *((k.encode(), v.encode()) for k, v in headers.items())],
}
server = Server("shared", config={"http": {"no_auth": True, "event_store": address[0]}})

async def post():
    sent = []
    app = server.asgi_app()
    async with app.lifespan(app):
        requests = iter([{"type": "http.request", "body": message, "more_body": False}])
        async def receive():
            return next(requests, None) or await asyncio.Event().wait()
        async def keep(event):
            sent.append(event)
        await app(scope, receive, keep)
    return sent

assert asyncio.run(post())[0]["status"] == 200
""",
    "schedules": """
server = Server("office")
server.agents.register_agent("clerk", clerk)
server.agents.every("0 6 * * *", "clerk", AgentMessage("report"), timezone="Europe/Berlin")

async def listed():
    async with TestClient(server):
        return await server.agents.list_schedules()

assert len(asyncio.run(listed())) == 1
""",
    "skills": """
from pathlib import Path

manifest = Path("skills/refunds/SKILL.md")
manifest.parent.mkdir(parents=True)
manifest.write_text("---\\nname: refunds\\ndescription: Refund an order.\\n---\\nAsk.\\n")
server = Server("shop")
server.skills_from("skills")

async def read():
    async with connect(server) as client:
        return await client.read_skill(await client.skill("refunds"))

assert asyncio.run(read()) == manifest.read_bytes()
""",
}
