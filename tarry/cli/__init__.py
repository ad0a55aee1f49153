"""The command line: each command parses its arguments, calls the library or the master, and prints."""
