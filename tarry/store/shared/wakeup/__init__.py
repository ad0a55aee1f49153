"""Wakes processes that sleep when there may be something for them in the store."""
