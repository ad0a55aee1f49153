"""Several stores used as one."""
