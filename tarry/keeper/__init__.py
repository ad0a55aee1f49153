"""A host's chores."""
