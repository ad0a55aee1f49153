"""The command line: each command parses, calls the engine or the master, and prints."""
