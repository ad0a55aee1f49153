"""Claims and settles, and runs each attempt."""
