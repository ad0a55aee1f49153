"""Durable steps: what a task did is kept with its job, so that another attempt skips it."""
