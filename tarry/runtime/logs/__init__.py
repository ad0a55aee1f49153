"""Where log lines go: stderr, a file, syslog, the journal."""
