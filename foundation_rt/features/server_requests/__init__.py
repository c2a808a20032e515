"""Requests of a server to its client in the middle of a call (spec/server-requests.md).

A request (`elicitation`, `sampling`, `roots`) is a value; `requests` has what all of them share.
`requester` sends those of one call, by the strategy of the client's revision:

* `open_requests`: a request of the server's, answered by a response (handshake mode);
* `round_trips`: the call ends with the requests that have no answer yet. The client calls again
  with the answers, and the handler runs again (stateless mode). What was answered before is
  kept in a state that the client carries, and that `request_state` protects against tampering.

`forms` makes the schema of a form, `answers` reads what comes back, `handed_on` passes the requests
of another server on. `feature` joins all this to the protocol, with `stateless_calls` for what a
call of the stateless mode brings and ends with; `errors` has what a handler may get.
"""
