"""AACP: messages between agents that are not lost, not run twice, and not guessed about.

What is promised stands in spec/aacp.md. The core is pure: `types`, `encoder`, `session_manager`,
`ledger`, `retransmitter`. `node` decides what is done when, `driver` does it; `stores` keep
ledgers, `transports` carry envelopes between them.
"""
