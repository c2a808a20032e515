"""Doing what was decided: connections, handlers, threads, tasks, timers."""
