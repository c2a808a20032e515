"""The version of the distribution, in the one place that states it."""

__version__ = "0.1.0"
