"""Tells people when a store is away, an endpoint fails, a queue is stuck, jobs are dead; and when that is over."""
