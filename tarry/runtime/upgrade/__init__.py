"""A new master takes the place of a running one, which has started it."""
