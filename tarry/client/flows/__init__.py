"""Flows as users have them: how they are built and stored, and the handle of one that is."""
