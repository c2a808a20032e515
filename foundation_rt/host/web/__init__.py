"""The host on the network: WebSocket, REST, and the files of the page (spec/host.md).

frames         what clients send, checked; pure
export         a chat as Markdown and JSON; pure
page_files     the files of the page, with their headers
status         the state of model and servers, and who is told when it changes
rest           `/api/...`
socket         one connection at `/ws`
application    the ASGI application, which routes to the others
"""
