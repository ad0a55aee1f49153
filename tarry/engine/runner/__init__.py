"""The ways to run a job: on a thread, or on the event loop. Each takes jobs and gives back outcomes."""
