"""Turns of lanes by weight."""
