"""One attempt of a task: what it sees, its hooks, and what follows. Imports sending."""
