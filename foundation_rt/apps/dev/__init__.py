"""A server under development: restarted on change, seen on a page (spec/dev.md).

An application on the gateway: clients keep their sessions with it while the program behind it is
replaced.

problems       the error of a program that cannot run: sentence, file, line; pure
log_lines      the lines that a program writes on stderr, as records; pure
journal        a bounded history of events, and its readers
file_watch     the files of a program, and how they change
program        one program: its state, its processes
client_wire    the messages of clients, their sessions and calls
restarts       a restart, from the change to what it has changed in the lists
front          all of it, put together
page_service   the page, and what it reads
terminal       readable lines
"""
