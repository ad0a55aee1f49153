"""The doors of a process, put together."""
