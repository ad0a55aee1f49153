"""Servers of our own for tests: started on free ports in a temporary directory, killed and started again at will.

No server that was there before is ever used. Where one is not installed, `make test` says so, and the tests that need
it are skipped; `python -m tests.servers.install` installs what is missing.
"""
