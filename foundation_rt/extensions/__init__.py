"""Extensions of the protocol, each in a package of its own."""
