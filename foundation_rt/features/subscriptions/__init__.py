"""Subscriptions: which client is notified of which events (spec/subscriptions.md)."""
