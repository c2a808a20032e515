"""What a client can ask for, a module for each noun of the protocol.

A method is a plain function of the dispatcher, the session, the peer and the request; it gives the
effects that answer it. `dispatcher.METHODS` lists them all; which of them a peer may use is a
matter of its revision (`protocol.revisions`).
"""
