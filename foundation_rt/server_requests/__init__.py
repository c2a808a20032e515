"""Asking the client in the middle of a call, whatever revision it speaks (spec/client-requests.md).

A question (`elicitation`, `sampling`, `roots`) is a value. `questions` says what all of them have
in common; `requester` is what one call asks. How a question travels is the era's business:
`session_requests` sends it as a request of the server's and waits for the response (handshake
era); `round_trips` ends the call with what is missing and runs its handler again with the answers
(stateless era), which it finds in a state that `request_state` has made proof against tampering.
"""
