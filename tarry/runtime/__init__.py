"""Processes: roles, pids and signals. Knows no job and no store; what a worker does is handed in from outside."""
