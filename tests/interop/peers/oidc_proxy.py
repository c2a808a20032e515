"""A server of fastmcp 4 before an identity provider: `OIDCProxy`.

Arguments: the issuer, the id and the secret of the client there, and the port to listen on.
"""

import sys

from fastmcp import FastMCP
from fastmcp.server.auth.oidc_proxy import OIDCProxy
from fastmcp.server.dependencies import get_access_token
from key_value.aio.stores.memory import MemoryStore

issuer, client_id, client_secret, port = sys.argv[1:]
base = f"http://127.0.0.1:{port}"
auth = OIDCProxy(
    config_url=f"{issuer}/.well-known/openid-configuration",
    client_id=client_id,
    client_secret=client_secret,
    base_url=base,
    required_scopes=["openid"],
    verify_id_token=True,
    forward_resource=False,
    client_storage=MemoryStore(),
    jwt_signing_key="key-of-the-tokens-of-the-proxy",
)
server = FastMCP("proxy", auth=auth)


@server.tool
def who() -> str:
    """Return the subject of the caller."""
    token = get_access_token()
    assert token is not None
    return str(token.claims.get("sub"))


server.run(transport="http", host="127.0.0.1", port=int(port), show_banner=False)
