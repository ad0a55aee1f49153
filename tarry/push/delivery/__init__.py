"""Attempts at an endpoint, and the state that a worker keeps of its endpoints."""
