"""Connections to a PostgreSQL server."""
