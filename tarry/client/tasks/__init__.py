"""Tasks that can be enqueued."""
