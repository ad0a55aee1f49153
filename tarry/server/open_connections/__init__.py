"""The open connections of a server process: listed, and ended."""
