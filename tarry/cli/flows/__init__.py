"""`tarry flows`: flows, and what waits for people."""
