"""Servers to read and to copy: each is one module, and runs as it is.

``foundation-rt serve foundation_rt.examples.notes`` serves one of them. They use the public names
of `foundation_rt` alone, so a copy needs no change.
"""
