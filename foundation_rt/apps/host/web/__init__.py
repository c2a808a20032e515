"""The host on the network: WebSocket, REST, and the files of the page (spec/host.md).

frames         what clients send, checked; pure
export         a chat as Markdown and JSON; pure
page/          the files of the page, without those that all pages share (web_page/)
status         the state of model and servers, and who is told when it changes
socket         one connection at `/ws`
application    the ASGI application, which routes to the others
"""
