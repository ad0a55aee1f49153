"""The verbs of a store, and the rules that all stores keep."""
