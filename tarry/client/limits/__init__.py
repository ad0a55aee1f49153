"""The limits of an app as a program sees them, and places under them outside of jobs."""
