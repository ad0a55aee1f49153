"""`tarry demo`: the embedded default at work on the files of Python's standard library."""
