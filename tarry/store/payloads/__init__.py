"""Keeps large arguments and results outside of the store, and reads them where they are needed."""
