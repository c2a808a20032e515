"""The site of the documentation: `python -m spec.site`, that is `make docs`.

`pages` gathers the pages: the README, spec/, the changelog. `reference` makes those of the API from
the docstrings, and `llms` the texts for language models. Sphinx builds them as `conf.py` says.
"""
