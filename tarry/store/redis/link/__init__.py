"""Connections to Redis: one server, the master that sentinels name, or the nodes of a cluster."""
