"""What happens to a job between its enqueue and its end: tasks, the client, the worker's pump and its runners."""
