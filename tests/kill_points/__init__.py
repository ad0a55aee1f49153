"""A process is killed at its n-th system call that reaches out, for each n; the next one does what it left."""
