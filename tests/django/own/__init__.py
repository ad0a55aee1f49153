"""Django's own tests of its backends, run with tarry's: `test_djangos_own.py` says where they come from."""
