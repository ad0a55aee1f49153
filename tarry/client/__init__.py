"""Enqueue, look, wait."""
