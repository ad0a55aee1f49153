"""One attempt at an endpoint, and what a worker keeps of its endpoints."""
