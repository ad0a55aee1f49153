"""The pure rules, run through every order of events up to a depth: see `__main__.py`."""
