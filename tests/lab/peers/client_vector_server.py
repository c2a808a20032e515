"""Plays the server's side of one of the client's conversations, over stdio.

    python client_vector_server.py SCRIPT TURNS GOT

SCRIPT is a JSON array of steps: what to `say`, if anything, and how many lines to `expect` then.
Nothing is said before a byte has come from the pipe TURNS: the program has to know what was said
before. Every line that comes is appended to GOT. Nothing is imported that is not needed: it starts
often.
"""

import json
import os
import sys


def main(script: str, pipe: str, got: str) -> None:
    with open(script) as file:
        steps = json.load(file)
    turns = os.open(pipe, os.O_RDONLY)
    log = os.open(got, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for number, step in enumerate(steps, start=1):
        if number == len(steps):
            print("only the end is left", file=sys.stderr, flush=True)
        if step["say"] is not None:
            os.read(turns, 1)
            sys.stdout.write(step["say"] + "\n")
            sys.stdout.flush()
        for _ in range(step["expect"]):
            os.write(log, sys.stdin.readline().encode())
    for line in sys.stdin:  # more than was expected
        os.write(log, line.encode())


main(*sys.argv[1:])
