"""What wraps and observes calls: middleware, rate limits, audit log, metrics, traces.

None of it is imported, and none of it costs a call anything, unless it was asked for (OPS-10).
"""
