"""Flows and signals on each engine: `flows.py` has the verbs, `settle.py` the rule that all of them follow."""
