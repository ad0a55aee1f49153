"""The master and its processes: roles, pids, signals. It knows no job and no store; what a child runs is passed in."""
