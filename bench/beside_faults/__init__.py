"""What becomes of jobs when things go wrong: tarry beside Celery, RQ, Dramatiq and Huey, on Redis, by one ledger."""
