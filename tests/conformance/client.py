"""The client that the public conformance suite is run against: `client.py URL`.

The suite says in the environment which of its scenarios it is, and with which values. What is done
for each is what a program would do that uses the client; in one that is not listed here it looks at
what there is and calls nothing. Nobody tells the client the revision: it finds out.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, build_opener

import orjson

from foundation_rt.client import Client, InvalidResponseError, MCPError, connect
from foundation_rt.client.auth.descriptions import (
    Authorization,
    ClientCredentials,
    EnterpriseManaged,
    LoginRequest,
    OAuth,
    WorkloadIdentity,
)

SCENARIO = os.environ["MCP_CONFORMANCE_SCENARIO"]
CONTEXT = orjson.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))


async def look(client: Client) -> None:
    """See what there is."""
    if client.has_capability("tools"):
        await client.list_tools()


async def add(client: Client) -> None:
    """Call the one tool there is."""
    await client.call("add_numbers", {"a": 2, "b": 3})


async def fill_in_defaults(client: Client) -> None:
    """Be asked for a form, and send it as it is."""
    await client.call("test_client_elicitation_defaults")


async def come_back(client: Client) -> None:
    """Lose the stream of a call, and find its answer.

    The suite takes the GET that listens for the one that comes back, if it is later than the call.
    """
    for _ in range(5):  # a round trip each: the GET has to look `localhost` up, and to connect
        await client.ping()
    await client.call("test_reconnection")


async def repeat_schema(client: Client) -> None:
    """Send a schema back as it came."""
    tool = await client.get_tool_schema("json_schema_2020_12_tool")
    await client.call("json_schema_echo", {"schema": tool.input_schema})


async def call_with_headers(client: Client) -> None:
    """Call tools whose arguments are repeated in headers; what is null is not given."""
    for call in CONTEXT["toolCalls"]:
        arguments = {key: value for key, value in call["arguments"].items() if value is not None}
        await client.call(call["name"], arguments)


async def call_everything(client: Client) -> None:
    """Call all tools; those with headers that cannot be sent are not among them."""
    for tool in await client.list_tools():
        await client.call(tool.name, dict.fromkeys(tool.input_schema["required"], "text"))


async def use_everything(client: Client) -> None:
    """Call all tools, read all resources, get all prompts."""
    await call_everything(client)
    for resource in await client.list_resources():
        await client.read_resource(resource.uri)
    for prompt in await client.list_prompts():
        await client.get_prompt(prompt.name)


async def answer_requests(client: Client) -> None:
    """Call tools that ask back, with one between that does not, at the same time too."""
    await client.call("test_mrtr_echo_state")
    await client.call("test_mrtr_unrelated")
    await asyncio.gather(
        *map(client.call, ("test_mrtr_no_state", "test_mrtr_unrelated", "test_mrtr_no_result_type"))
    )


async def refer(client: Client) -> None:
    """Hold arguments against a schema that refers to another server; there the tool is missing."""
    try:
        await client.call("lookup_user", {"id": "ada", "profile": {"displayName": "Ada"}})
    except MCPError as error:
        assert error.original_code is not None, error


async def call_a_tool(client: Client) -> None:
    """See what there is, and call it: more may be needed for that."""
    await client.list_tools()
    await client.call("test-tool")


async def see_it_twice(client: Client) -> None:
    """Look again, after the server has changed its mind about who gives tokens."""
    await client.request("tools/list")
    await client.request("tools/list")


async def list_skills(client: Client) -> None:
    """See which skills there are."""
    assert await client.skills()


async def refuse_skill(client: Client) -> None:
    """Load a skill that is not what the server says of it, and leave it at that."""
    [skill] = await client.skills()
    with suppress(InvalidResponseError):
        await client.read_skill(skill)
        await client.read_skill(skill, "references/FORMS.md")


SCENARIOS: dict[str, Callable[[Client], Awaitable[None]]] = {
    "tools_call": add,
    "elicitation-sep1034-client-defaults": fill_in_defaults,
    "sse-retry": come_back,
    "json-schema-2020-12-preservation": repeat_schema,
    "sep-2322-client-request-state": answer_requests,
    "http-standard-headers": use_everything,
    "http-custom-headers": call_with_headers,
    "http-invalid-tool-headers": call_everything,
    "json-schema-ref-no-deref": refer,
    "sep-2640-client-no-prefetch": list_skills,
    "sep-2640-client-verify-digest": refuse_skill,
    "sep-2640-client-verify-frontmatter": refuse_skill,
    "sep-2640-client-verify-size": refuse_skill,
    "auth/scope-step-up": call_a_tool,
    "auth/authorization-server-migration": see_it_twice,
}

REFUSING = (
    "auth/iss-normalized",
    "auth/iss-supported-missing",
    "auth/iss-unexpected",
    "auth/iss-wrong-issuer",
    "auth/metadata-issuer-mismatch",
    "auth/resource-mismatch",
    "auth/scope-retry-limit",
)
"""Scenarios of a server that no client may log in to, or none ever can."""

METADATA_URL = "https://conformance-test.local/client-metadata.json"


class _NoRedirects(HTTPRedirectHandler):
    """Shows a redirect instead of following it."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _page_of(url: str) -> str:
    try:
        build_opener(_NoRedirects).open(url, timeout=10)
    except HTTPError as page:
        return str(page.headers["Location"])
    raise AssertionError("the page does not lead back")


async def log_in(request: LoginRequest) -> str:
    """Be the browser of a person who agrees to everything."""
    return await asyncio.to_thread(_page_of, request.url)


def authorization() -> Authorization | None:
    """Return how the client of this scenario is authorized."""
    if not SCENARIO.startswith("auth/"):
        return None
    known = CONTEXT.get
    match SCENARIO:
        case "auth/client-credentials-basic":
            return ClientCredentials(known("client_id"), client_secret=known("client_secret"))
        case "auth/client-credentials-jwt":
            return ClientCredentials(known("client_id"), private_key=known("private_key_pem"))
        case "auth/wif-jwt-bearer":
            return WorkloadIdentity(known("valid_jwt"), client_id=known("client_id"))
        case "auth/enterprise-managed-authorization":
            return EnterpriseManaged(
                known("idp_issuer"),
                known("idp_client_id"),
                known("idp_id_token"),
                known("client_id"),
                client_secret=known("client_secret"),
            )
    return OAuth(
        client_id=known("client_id"),
        client_secret=known("client_secret"),
        issuer=known("issuer"),
        client_metadata_url=METADATA_URL if SCENARIO == "auth/basic-cimd" else None,
        login=log_in,
    )


def fill_in(request: Any) -> dict[str, Any]:
    """Return the defaults of a form, as a user who changes nothing sends them."""
    return {}


async def main() -> None:
    """Connect to the server, and do what the scenario is about."""
    server = connect(
        sys.argv[-1], auth=authorization(), require=(), elicitation=fill_in, timeout=10
    )
    async with server as client:
        try:
            await client.initialize()
            await SCENARIOS.get(SCENARIO, look)(client)
        except MCPError as error:
            assert SCENARIO in REFUSING and error.code == "E207", error
        else:
            assert SCENARIO not in REFUSING


if __name__ == "__main__":
    asyncio.run(main())
