"""What can go wrong when a client is asked, in the words its reader gets."""

from __future__ import annotations

from foundation_rt.errors import ErrorCode, ToolError
from foundation_rt.features.server_requests.errors import (
    ClientCapabilityError,
    ClientErrorResponse,
    InvalidClientResult,
    ServerRequestError,
    UrlElicitationRequired,
    merge_capabilities,
)


def test_all_errors_are_server_request_errors() -> None:
    assert issubclass(ServerRequestError, ToolError)
    for kind in (ClientCapabilityError, ClientErrorResponse, InvalidClientResult):
        assert issubclass(kind, ServerRequestError)
    assert UrlElicitationRequired().code is ErrorCode.INVALID_ARGUMENT


def test_missing_capabilities_are_named() -> None:
    required = merge_capabilities(
        {"sampling": {}}, {"sampling": {"tools": {}}}, {"elicitation": {"form": {}}}, {"roots": {}}
    )
    assert required == {"sampling": {"tools": {}}, "elicitation": {"form": {}}, "roots": {}}
    error = ClientCapabilityError(required)
    assert error.message == (
        "This needs a client with the capability sampling.tools and elicitation.form and roots."
    )
    assert error.details == {
        "reason": "missing_client_capability",
        "requiredCapabilities": required,
    }


def test_message_of_an_error_response_is_cut() -> None:
    error = ClientErrorResponse(-1, "no" * 1000)
    assert error.message == f"The client refused: {'no' * 250}"
    assert error.json_rpc_message == "no" * 1000
    assert (error.json_rpc_code, error.json_rpc_data) == (-1, None)


def test_error_of_an_invalid_result_does_not_repeat_its_content() -> None:
    error = InvalidClientResult(("/content/a", "must be integer"), ("/content/b", "must be string"))
    assert "/content/a must be integer" in error.message
    assert [issue["path"] for issue in error.details["errors"]] == ["/content/a", "/content/b"]
