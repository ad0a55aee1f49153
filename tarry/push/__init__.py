"""Delivers jobs to HTTP endpoints on time, and retries until they are accepted."""
