"""Middleware around calls, and observers of them: rate limits, audit log, metrics, traces.

A part that is not configured is neither imported nor costs a call anything (OPS-10).
"""
