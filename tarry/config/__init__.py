"""All settings: what they are, how they are read, checked and put together."""
