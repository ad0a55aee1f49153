"""One module a project: its app, as its own documentation shows it. Each runs in an environment of its own."""
