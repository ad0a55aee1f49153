"""Keeps jobs, decides nothing. `base` has the verbs and what they promise; `conformance` proves the promises."""
