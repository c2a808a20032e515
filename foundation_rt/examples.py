"""The public path of the examples: they are in `foundation_rt/apps/examples`."""

from .apps.examples import __path__ as __path__
