"""The names of FastMCP and of the official SDK, and ours: the one table of a migration (MIGR-02).

FastMCP 2 to 4 and the SDK 1 and 2 have the same class under many modules. So a name is looked up by
its last part; those of the wire, which `mcp.types` and `mcp_types` have, as `types.Name`.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

LIBRARIES = ("fastmcp", "fastmcp_tasks", "mcp", "mcp_types")
"""The packages whose programs are migrated."""

TYPES_MODULES = ("mcp.types", "mcp_types")


@frozen
class ArgumentRule:
    """The arguments of a call, as they were and as they are.

    Attributes:
        positions: the names of the positional parameters, as they were.
        keeps: parameters that have the same name.
        renames: parameters that have another name.
        drops: parameters that have no meaning here, and the reason; "" needs no word.
        decides: parameters that a person has to decide, and what to do; they are left in place.
    """

    positions: tuple[str, ...] = ()
    keeps: tuple[str, ...] = ()
    renames: Mapping[str, str] = field(factory=dict)
    drops: Mapping[str, str] = field(factory=dict)
    decides: Mapping[str, str] = field(factory=dict)


_PRESENTATION = ("name", "title", "description", "icons", "meta")
_TYPE = {"type": ""}
_LOGIN = (
    "remove it; set http.api_keys, or the section oauth or authorization (spec/guide/security.md)"
)

_ON_DUPLICATE = (
    *("warn_on_duplicate_tools", "warn_on_duplicate_resources", "warn_on_duplicate_prompts"),
    *("on_duplicate", "on_duplicate_tools", "on_duplicate_resources", "on_duplicate_prompts"),
)

SERVER = ArgumentRule(
    positions=("name", "instructions"),
    keeps=("name", "version", "instructions", "title", "website_url", "icons"),
    drops={
        "debug": "use --debug of your own logging",
        "log_level": "logging.level is set in the configuration",
        "dependencies": "declare them in pyproject.toml",
        "description": "instructions tell the model what the server is for",
        "json_response": "the response is JSON or a stream, as the call needs",
        "stateless_http": "clients of every revision are served, with and without a session",
        "mask_error_details": "texts of exceptions are hidden unless tools.expose_error_details",
        "strict_input_validation": "arguments are always checked strictly",
        **dict.fromkeys(_ON_DUPLICATE, "a name that is taken is always an error"),
        "include_fastmcp_meta": "",
        "dereference_schemas": "references in schemas stay, which clients read",
        "client_log_level": "each client sets its own level",
        "subscriptions": "clients are notified of changes if they ask for it",
        "retry_interval": "the server tells clients itself when to come back",
        "list_page_size": "server.page_size is set in the configuration",
        "mount_path": "",
        "sse_path": "the HTTP+SSE transport of 2024 is not served",
        "message_path": "the HTTP+SSE transport of 2024 is not served",
        "event_store": "streams are resumed without one (spec/resumption.md)",
        "tasks": 'give task="optional" to each tool that may become a task',
        "website": "",
    },
    decides={
        "auth": _LOGIN,
        "auth_server_provider": _LOGIN,
        "token_verifier": _LOGIN,
        "middleware": "write `@server.middleware async def f(call, proceed)`",
        "cache_hints": "give cache_ttl_ms=... to each resource, or set it in the configuration",
        "resource_security": "values of variables never leave their folder: remove it",
        "request_state_security": "set security.state_key, and remove it",
        "sampling_handler": "use a client that has a model, or call the model in the tool",
        "sampling_handler_behavior": "remove it with sampling_handler=",
        "transport_security": "set http.allowed_hosts and http.allowed_origins",
        "providers": "register what the provider has, or mount a server",
        "transforms": "shape tools where they join: mount(other, transform=Transform({...}))",
        "extensions": "register what the extension adds, and declare it: Server(extensions={...})",
        "cache_ttl": "give cache_ttl_ms=... to each resource, or set it in the configuration",
        "cache_scope": "remove it: what depends on the principal is never shared",
        "session_state_store": "set where sessions keep their state in the configuration",
        "experimental_capabilities": "remove it: clients ignore what they do not know",
        "resources": "use @server.resource, or server.register_resource",
        "get_tool_input_schema": "remove it: tools are registered with their schemas",
    },
)
"""Of `FastMCP`, `MCPServer` and the low-level `Server`."""

_SERVING = {
    "json_response": SERVER.drops["json_response"],
    "stateless_http": SERVER.drops["stateless_http"],
    "stateless": SERVER.drops["stateless_http"],
    "retry_interval": SERVER.drops["retry_interval"],
    "log_level": SERVER.drops["log_level"],
    "event_store": SERVER.drops["event_store"],
    "mount_path": "",
    "show_banner": "",
    "debug": "",
    "session_idle_timeout": "http.session_idle_ms is set in the configuration",
}
_SERVING_DECIDED = {
    "transport_security": "set http.allowed_hosts and http.allowed_origins",
    "middleware": "wrap server.asgi_app() in it",
    "auth": SERVER.decides["auth"],
    "uvicorn_config": "run server.asgi_app() with uvicorn",
    "sockets": "run server.asgi_app() with uvicorn",
    "host_origin_protection": "Host and Origin are always checked: remove it",
    "allowed_hosts": "set http.allowed_hosts",
    "allowed_origins": "set http.allowed_origins",
    "max_request_body_size": "set http.max_body_bytes",
    "max_sessions": "set http.max_sessions",
    "custom_starlette_routes": "use server.http_app(Starlette(routes=...))",
    "token_verifier": SERVER.decides["auth"],
    "auth_server_provider": SERVER.decides["auth"],
}
ASGI_APP = ArgumentRule(
    positions=("path",),
    keeps=("path",),
    renames={"streamable_http_path": "path"},
    drops={
        **_SERVING,
        "transport": "Streamable HTTP is served",
        "host": "the server of the application says where it listens",
    },
    decides=_SERVING_DECIDED,
)
"""Of `http_app` and `streamable_http_app`."""

RUN = ArgumentRule(drops={**_SERVING, "transport": ""}, decides=_SERVING_DECIDED)
"""Of `run` and its kind, besides the transport and the address."""

SWITCH = ArgumentRule(
    keeps=("tags", "only"),
    decides={
        "keys": 'give names of tools (a version: "NAME@VERSION"), of prompts, and URIs',
        "components": "give names or tags: it concerns tools, resources and prompts here",
        "version": 'give the name of one version of a tool: "NAME@VERSION"',
        "match_all": "remove it, or name all",
    },
)
"""Of `enable` and `disable`, besides the names."""

_API_DECIDED = {
    "route_maps": 'give routes={"GET /path": "resource"}, or exclude=[...]',
    "route_map_fn": "give routes=, a function that returns tool, resource or skip",
    "mcp_component_fn": "give rename=",
    "tags": "remove it: tags= selects operations here",
    "timeout": "set tools.default_timeout_ms in the configuration",
    "validate_output": "give strict_outputs=True if it is True",
}
APIS = {
    "from_openapi": ArgumentRule(
        positions=("openapi_spec", "client", "name"),
        keeps=("client", "name"),
        renames={
            "openapi_spec": "document",
            "mcp_names": "rename",
        },
        decides=_API_DECIDED,
    ),
    "from_fastapi": ArgumentRule(
        positions=("app", "name"),
        keeps=("app", "name"),
        renames={"mcp_names": "rename"},
        decides={
            **_API_DECIDED,
            "httpx_client_kwargs": "give headers= or auth=",
        },
    ),
}
"""Of the methods of FastMCP that make a server of an HTTP API."""

SESSION_MANAGER = ArgumentRule(
    drops=_SERVING,
    decides={**_SERVING_DECIDED, "security_settings": _SERVING_DECIDED["transport_security"]},
)
"""Of `StreamableHTTPSessionManager`, besides the server."""

TOOL = ArgumentRule(
    positions=("name", "title", "description", "annotations"),
    keeps=(*_PRESENTATION, "annotations", "output_schema", "version", "tags", "scopes"),
    renames={"structured_output": "output_schema", "timeout": "timeout_ms"},
    drops={
        "serializer": "return a str",
        "run_in_thread": "",
    },
    decides={
        "enabled": 'remove it, and call server.disable("NAME") if it was False',
        "task": 'give task="optional" or task="required"',
        "auth": "give scopes=(...) or visible=predicate",
        "exclude_args": "use Depends, or a ToolContext parameter",
        "app": "put what the client needs into meta=",
    },
)
RESOURCE = ArgumentRule(
    positions=("uri",),
    keeps=(*_PRESENTATION, "uri", "mime_type", "annotations", "size", "tags", "scopes"),
    drops={
        "security": "values of variables are always checked",
    },
    decides={
        "auth": "give scopes=(...) or visible=predicate",
        "enabled": 'remove it, and call server.disable("NAME") if it was False',
        "app": "put what the client needs into meta=",
        "version": "a resource has one version: give it another URI",
        "task": "resources are never tasks",
    },
)
PROMPT = ArgumentRule(
    positions=("name", "title", "description"),
    keeps=(*_PRESENTATION, "tags", "scopes"),
    decides={
        "enabled": 'remove it, and call server.disable("NAME") if it was False',
        "auth": "give scopes=(...) or visible=predicate",
        "version": "a prompt has one version: give it another name",
        "task": "prompts are never tasks",
    },
)
DECORATORS = {"tool": TOOL, "resource": RESOURCE, "prompt": PROMPT}
"""The decorators that both libraries have."""

RUNS = frozenset(
    {"run", "run_async", "run_stdio_async", "run_http_async", "run_streamable_http_async"}
)
"""The methods of a server that serve."""

LOW_LEVEL = {
    "list_tools": "register each tool: server.register(ToolDefinition(...), handler)",
    "call_tool": "write a handler for each tool, which server.register takes",
    "list_resources": "register each: server.register_resource(ResourceDefinition(...), handler)",
    "list_resource_templates": "register each with server.register_resource_template",
    "read_resource": "write a handler for each resource, which server.register_resource takes",
    "list_prompts": "register each: server.register_prompt(PromptDefinition(...), handler)",
    "get_prompt": "write a handler for each prompt, which server.register_prompt takes",
    "completion": "use @server.completion, whose handler takes a CompletionRequest",
    "set_logging_level": "remove it: the server keeps a level for each client, which ctx.log "
    "obeys; the level of the program is logging.level",
    "subscribe_resource": "remove it: the server keeps subscriptions; call "
    "server.resource_updated(uri)",
    "unsubscribe_resource": "remove it: the server keeps subscriptions",
    "progress_notification": "remove it: clients' progress has no handler here",
    "roots_list_changed": "use @server.on_roots_changed",
}
"""The handlers of a low-level server, and what to write instead."""

LOW_LEVEL_RESULTS = frozenset(
    {
        "types.ListToolsResult",
        "types.ListResourcesResult",
        "types.ListResourceTemplatesResult",
        "types.ListPromptsResult",
        "types.ReadResourceResult",
        "types.CompleteResult",
    }
)
"""Results of the wire that only handlers of a low-level server make."""

ELICITED = {
    "AcceptedElicitation": "accept",
    "DeclinedElicitation": "decline",
    "CancelledElicitation": "cancel",
}
"""Classes of answers of a user, and the action of ours."""

PROTOCOL_ERRORS = frozenset({"McpError", "MCPError"})
"""Errors that take a code of JSON-RPC; a handler here raises an error of a tool."""

TOOL_ERRORS = {
    "ToolError": "INTERNAL",
    "ResourceError": "INTERNAL",
    "PromptError": "INTERNAL",
    "NotFoundError": "NOT_FOUND",
    "ResourceNotFoundError": "NOT_FOUND",
    "AuthorizationError": "UNAUTHORIZED",
    "ValidationError": "INVALID_ARGUMENT",
}
"""Errors that take a text alone, and their code here."""

_SAME = "Server Image Audio Icon ToolResult PromptMessage PromptResult Depends"
_SAME_TYPES = (
    "EmbeddedResource ResourceLink Annotations ToolAnnotations PromptArgument "
    "PromptMessage Icon SamplingMessage ModelPreferences Completion ElicitResult"
)

NAMES: dict[str, str] = {
    **{name: f"foundation_rt.{name}" for name in _SAME.split()},
    **{f"types.{name}": f"foundation_rt.{name}" for name in _SAME_TYPES.split()},
    **dict.fromkeys((*TOOL_ERRORS, *PROTOCOL_ERRORS), "foundation_rt.ToolError"),
    **dict.fromkeys(ELICITED, "foundation_rt.ElicitResult"),
    "FastMCP": "foundation_rt.Server",
    "MCPServer": "foundation_rt.Server",
    "Context": "foundation_rt.ToolContext",
    "ServerRequestContext": "foundation_rt.ToolContext",
    "RequestContext": "foundation_rt.ToolContext",
    "Message": "foundation_rt.PromptMessage",
    "UserMessage": "foundation_rt.PromptMessage",
    "AssistantMessage": "foundation_rt.PromptMessage",
    "UrlElicitationRequiredError": "foundation_rt.UrlElicitationRequired",
    "types.ElicitRequestURLParams": "foundation_rt.ElicitUrl",
    "Resolve": "foundation_rt.Depends",
    "ElicitationResult": "foundation_rt.ElicitResult",
    "File": "foundation_rt.EmbeddedResource",
    "ReadResourceContents": "foundation_rt.TextContents",
    "ResourceContent": "foundation_rt.TextContents",
    "types.TextContent": "foundation_rt.Text",
    "types.ImageContent": "foundation_rt.Image",
    "types.AudioContent": "foundation_rt.Audio",
    "types.TextResourceContents": "foundation_rt.TextContents",
    "types.BlobResourceContents": "foundation_rt.BlobContents",
    "types.CallToolResult": "foundation_rt.ToolResult",
    "types.Tool": "foundation_rt.ToolDefinition",
    "types.Prompt": "foundation_rt.PromptDefinition",
    "types.GetPromptResult": "foundation_rt.PromptResult",
    "types.Resource": "foundation_rt.ResourceDefinition",
    "types.ResourceTemplate": "foundation_rt.ResourceTemplateDefinition",
    "types.ContentBlock": "typing.Any",
    "types.LoggingLevel": "builtins.str",
    "TransportSecuritySettings": "builtins.dict",
}
"""Names that are replaced where they stand, by the last part of their full name."""

CALLS: dict[str, ArgumentRule] = {
    "types.TextContent": ArgumentRule(keeps=("text", "annotations", "meta"), drops=_TYPE),
    "types.ImageContent": ArgumentRule(
        keeps=("data", "annotations", "meta", "mime_type"), drops=_TYPE
    ),
    "types.AudioContent": ArgumentRule(
        keeps=("data", "annotations", "meta", "mime_type"), drops=_TYPE
    ),
    "types.EmbeddedResource": ArgumentRule(
        keeps=("annotations", "meta"), renames={"resource": "contents"}, drops=_TYPE
    ),
    "types.ResourceLink": ArgumentRule(
        keeps=(*_PRESENTATION, "uri", "mime_type", "size", "annotations"),
        drops=_TYPE,
    ),
    "types.TextResourceContents": ArgumentRule(keeps=("uri", "text", "meta", "mime_type")),
    "types.BlobResourceContents": ArgumentRule(keeps=("uri", "blob", "meta", "mime_type")),
    "types.Annotations": ArgumentRule(keeps=("audience", "priority", "last_modified")),
    "types.ToolAnnotations": ArgumentRule(
        keeps=("title",),
        renames={
            "read_only_hint": "read_only",
            "destructive_hint": "destructive",
            "idempotent_hint": "idempotent",
            "open_world_hint": "open_world",
        },
    ),
    "types.CallToolResult": ArgumentRule(
        keeps=("content", "is_error", "meta"),
        renames={"structured_content": "structured"},
    ),
    "ToolResult": ArgumentRule(
        positions=("content", "structured_content", "meta"),
        keeps=("content", "meta", "is_error"),
        renames={"structured_content": "structured"},
    ),
    "types.Tool": ArgumentRule(
        keeps=(*_PRESENTATION, "input_schema", "output_schema", "annotations"),
        decides={"execution": 'give task="optional" where the tool is registered'},
    ),
    "types.Prompt": ArgumentRule(keeps=(*_PRESENTATION, "arguments")),
    "types.PromptArgument": ArgumentRule(keeps=("name", "description", "required", "title")),
    "types.PromptMessage": ArgumentRule(keeps=("role", "content")),
    "types.GetPromptResult": ArgumentRule(keeps=("description", "messages", "meta")),
    "types.Resource": ArgumentRule(
        keeps=(*_PRESENTATION, "uri", "mime_type", "size", "annotations")
    ),
    "types.ResourceTemplate": ArgumentRule(
        keeps=(*_PRESENTATION, "uri_template", "mime_type", "annotations"),
    ),
    "types.ElicitRequestURLParams": ArgumentRule(
        keeps=("message", "url", "elicitation_id"),
        drops={"mode": ""},
    ),
    "types.Icon": ArgumentRule(keeps=("src", "mime_type", "sizes", "theme")),
    "Icon": ArgumentRule(keeps=("src", "mime_type", "sizes", "theme")),
    "types.SamplingMessage": ArgumentRule(keeps=("role", "content", "meta")),
    "types.ModelPreferences": ArgumentRule(
        keeps=("hints", "cost_priority", "speed_priority", "intelligence_priority"),
    ),
    "ReadResourceContents": ArgumentRule(
        positions=("content", "mime_type"),
        keeps=("uri", "mime_type", "meta"),
        renames={"content": "text"},
    ),
    "types.Completion": ArgumentRule(keeps=("values", "total", "has_more")),
    "TransportSecuritySettings": ArgumentRule(
        keeps=("allowed_hosts", "allowed_origins"),
        drops={"enable_dns_rebinding_protection": "Host and Origin are always checked"},
    ),
    "PromptResult": ArgumentRule(
        positions=("messages", "description", "meta"), keeps=("messages", "description", "meta")
    ),
}
"""The arguments of classes, by our spelling: `mimeType` and `_meta` are read as ours are."""

ERROR_CODES = {
    "types.INVALID_PARAMS": "INVALID_ARGUMENT",
    "types.INVALID_REQUEST": "INVALID_ARGUMENT",
    "types.PARSE_ERROR": "INVALID_ARGUMENT",
    "types.METHOD_NOT_FOUND": "NOT_FOUND",
    "types.INTERNAL_ERROR": "INTERNAL",
}
"""Codes of JSON-RPC, and those of a tool error that say the same."""

REVISIONS = {
    "HANDSHAKE_PROTOCOL_VERSIONS": '("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")',
    "LATEST_HANDSHAKE_VERSION": '"2025-11-25"',
    "LATEST_MODERN_VERSION": '"2026-07-28"',
    "MODERN_PROTOCOL_VERSIONS": '("2026-07-28",)',
    "OLDEST_SUPPORTED_VERSION": '"2024-11-05"',
}
"""Constants of revisions, written out; those of all that a library supports are left."""

CONTEXT_ATTRIBUTES = {
    "lifespan_context": "state",
    "session_id": "session_key",
    "request_id": "run_id",
    "close_sse_stream": "close_stream",
}
"""Attributes of a context that have another name."""

OPTIONS = "create_initialization_options"
"""The method of a low-level server that makes an argument of its `run`."""

CONTEXT_KEPT = frozenset(
    (
        *("abort_signal", "ask", "client", "close_stream", "correlation_id", "debug", "elicit"),
        *("elicit_url", "error", "headers", "info", "log", "logger", "notify", "principal"),
        *("read_resource", "report_progress", "roots", "run_id", "sample", "session_key"),
        *("session_state", "state", "warning"),
        # Methods of theirs that are rewritten where they are called.
        *("close_sse_stream", "delete_state", "get_state", "list_roots", "set_state"),
        *(
            "notify_resource_updated",
            "transport",
            "call",
            "notify_prompts_changed",
            "notify_resources_changed",
            "notify_tools_changed",
        ),
    )
)
"""Attributes of our context; those of the other libraries among them mean the same."""

CONTEXT_ADVICE = {
    "fastmcp": "use the server itself",
    "mcp_server": "use the server itself",
    "session": "use the context: ctx.sample, ctx.elicit, ctx.log, server.list_changed",
    "request_context": "use ctx.client, ctx.principal, ctx.headers and ctx.state",
    "client_id": "use ctx.principal, which is authenticated",
    "client_capabilities": "use ctx.client.declared",
    "client_supports_extension": "use ctx.client.can(...)",
    "input_responses": "use `await ctx.elicit(...)`, which works in every revision",
    "request_state": "use `await ctx.elicit(...)`, which works in every revision",
    "is_background_task": "tasks need nothing of a handler",
    "notify_resource_updated": "use server.resource_updated(uri)",
    "notify_tools_changed": 'use server.list_changed("tools")',
    "notify_resources_changed": 'use server.list_changed("resources")',
    "notify_prompts_changed": 'use server.list_changed("prompts")',
    "list_resources": "use server.list_resources()",
    "list_prompts": "use server.list_prompts()",
    "get_prompt": "call the prompt's function",
    "enable_components": 'use server.enable("NAME", tags=...)',
    "disable_components": 'use server.disable("NAME", tags=...)',
    "sample_step": "use `await ctx.sample(..., tools=...)` in a loop",
    "set_transient_state": "use a variable",
}
"""Advice on attributes of a context that have no counterpart of one name."""

NOTIFICATIONS = {
    "send_tool_list_changed": "tools",
    "send_resource_list_changed": "resources",
    "send_prompt_list_changed": "prompts",
}
"""Methods of a session that say that a list has changed."""

TRANSFORM_ADVICE = {
    "ToolTransform": "shape tools where they join: server.mount(other, transform=Transform({...}))",
    "forward": "give `call`, a function (call, arguments, ctx), in a Transform",
    "Namespace": "give a prefix where the server is mounted: server.mount(other, prefix)",
    "VersionFilter": 'call server.disable("NAME@VERSION") for each version that is hidden',
    "Visibility": 'call server.enable(...) or server.disable("NAME", tags=...)',
    "PromptsAsTools": "use server.expose_prompts_as_tools()",
    "ResourcesAsTools": "use server.expose_resources_as_tools()",
    "RegexSearchTransform": 'set tools.expose = "search" in the configuration',
    "BM25SearchTransform": 'set tools.expose = "search" in the configuration',
    "search": 'set tools.expose = "search" in the configuration',
}
"""Advice on transforms of FastMCP, by the name of their class or module."""

READY_MIDDLEWARE = {
    "authorization": "drop it: give scopes=... or visible=... to each tool, resource and prompt",
    "caching": "drop it: give cache_ttl_ms=... to each resource; results of tools are not kept",
    "dereference": "drop it: references in schemas stay, which clients read",
    "error_handling.RetryMiddleware": "drop it: repeat in the handler what may fail",
    "error_handling": "drop it: errors are logged, and answered without their text",
    "logging": "drop it: every call has a record in the log (spec/logging.md)",
    "ping": "drop it: idle streams are kept open, by http.keep_alive_ms",
    "rate_limiting": "drop it: set rate_limit.per_key, per_tool and window_ms",
    "response_limiting": "drop it: set tools.max_response_bytes",
    "timing": "drop it: the record of a call has its duration; telemetry.metrics counts them",
    "tool_injection": "drop it: register the tools",
}
"""Advice on the middleware that comes with FastMCP, by its module or its name there."""

ADVICE: tuple[tuple[str, str], ...] = (
    ("fastmcp.client", "a client is `foundation_rt.client.connect` (spec/client.md)"),
    ("fastmcp.Client", "a client is `foundation_rt.client.connect`; tests use TestClient"),
    ("mcp.client", "a client is `foundation_rt.client.connect` (spec/client.md)"),
    ("mcp.ClientSession", "a client is `foundation_rt.client.connect` (spec/client.md)"),
    ("mcp.StdioServerParameters", "a client is `foundation_rt.client.connect` (spec/client.md)"),
    ("fastmcp.server.auth", _LOGIN),
    ("mcp.server.auth", _LOGIN),
    ("fastmcp.server.providers.openapi", "use Server.from_openapi"),
    ("fastmcp.server.openapi", "use Server.from_openapi"),
    ("fastmcp.server.providers", "register what the provider has, or mount a server"),
    *((f"fastmcp.server.transforms.{name}", text) for name, text in TRANSFORM_ADVICE.items()),
    ("fastmcp.server.transforms", TRANSFORM_ADVICE["ToolTransform"]),
    ("fastmcp.tools.tool_transform", TRANSFORM_ADVICE["ToolTransform"]),
    ("fastmcp.tools.forward", TRANSFORM_ADVICE["forward"]),
    ("fastmcp.experimental", "it has no counterpart"),
    ("fastmcp.apps", "interfaces in the client are not built here: return content, or ask"),
    ("fastmcp.FastMCPApp", "interfaces in the client are not built here: return content, or ask"),
    ("mcp.server.apps", "interfaces in the client are not built here: return content, or ask"),
    ("prefab_ui", "interfaces in the client are not built here: return content, or ask"),
    *((f"fastmcp.server.middleware.{module}", text) for module, text in READY_MIDDLEWARE.items()),
    ("fastmcp.server.middleware", "write `@server.middleware async def f(call, proceed)`"),
    ("fastmcp.dependencies.Progress", "use `ctx.report_progress(progress, total, message)`"),
    ("fastmcp.utilities.tasks", 'give task="optional" to the tool (spec/tasks.md)'),
    ("fastmcp.server.dependencies", "take a ToolContext parameter: ctx.headers, ctx.principal"),
    ("fastmcp.server.create_proxy", "use `foundation-rt gateway` (spec/gateway.md)"),
    ("fastmcp.cli", "the command line is `foundation-rt`"),
    ("fastmcp.utilities.logging", "use ctx.logger, or the logging of Python"),
    ("mcp.server.sse", "the HTTP+SSE transport of 2024 is not served: use server.asgi_app()"),
    ("mcp.server.streamable_http", "use server.run_http() or server.asgi_app()"),
    ("mcp.server.streamable_http_manager", "use server.run_http() or server.asgi_app()"),
    ("mcp.server.extension", "register what the extension adds"),
    ("mcp.server.experimental", 'give task="optional" to the tool (spec/tasks.md)'),
    ("mcp.shared.memory", "use foundation_rt.testing.TestClient"),
    ("mcp.types", "use foundation_rt's own value, or a dict of JSON"),
    ("mcp_types", "use foundation_rt's own value, or a dict of JSON"),
)
"""Advice on other names, by the beginning of their full name; the first that fits."""

NO_ADVICE = "it has no counterpart: change or remove it by hand"


def canonical(full: str) -> str | None:
    """Return the key of a full name in the tables; None if it is of no library, or of a client."""
    module, _, name = full.rpartition(".")
    root = full.partition(".")[0]
    if root not in LIBRARIES or not module or ".client" in module:
        return None
    if module in TYPES_MODULES:
        return f"types.{name}"
    return f"types.{name}" if module == "mcp" and f"types.{name}" in NAMES else name


def advice(full: str) -> str:
    """Return the advice on a name that has no counterpart."""
    if full.startswith("Context."):
        return CONTEXT_ADVICE.get(full.removeprefix("Context."), NO_ADVICE)
    for beginning, text in ADVICE:
        if full == beginning or full.startswith(f"{beginning}."):
            return text
    return NO_ADVICE
