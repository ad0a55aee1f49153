"""Notifies people when a store is away, an endpoint fails, a queue is stuck or jobs are dead, and when that ends."""
