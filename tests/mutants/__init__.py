"""Mistakes that the tests must see: small changes of the code, applied one at a time, each to a copy of the tree.

Each `*.toml` here lists some, as `[[mutant]]`: `name`; `file`; `find`, a text that stands in it once; `replace`; and
which tests are to fail: `tests`, and `k`, pytest's expression that narrows them. `python -m tests.mutants` runs them.
"""
