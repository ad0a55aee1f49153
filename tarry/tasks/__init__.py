"""What a task is, its arguments, its hooks."""
