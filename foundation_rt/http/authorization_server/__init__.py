"""The server as its own authorization server, before an identity provider.

    client ─► /authorize ─► consent ─► provider's page ─► /callback ─► code ─► /token ─► JWT of ours

`http/app.py` loads it by name, for a server with `authorization.url`; nothing else knows it
(spec/authorization-server.md). The flows are ours; joserfc signs, the client's HTTP carries.
"""

from ...base.extras import require

require("authorization.url", "http-full", "cryptography", "joserfc")
