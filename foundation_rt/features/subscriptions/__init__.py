"""Subscriptions: which client is notified of which events (spec/subscriptions.md).

That a list has changed is such an event: `features.list_changes` publishes it.
"""
