"""One attempt, from arguments to outcome."""
