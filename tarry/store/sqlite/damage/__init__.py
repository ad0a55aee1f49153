"""Damage of a database file: noticed while it is in use, told to all processes, looked for, and mended."""
