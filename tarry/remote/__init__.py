"""A client of the HTTP API: for programs that have no way to the store, with the verbs of an app."""
