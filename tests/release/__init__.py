"""A stranger's checklist before a release: `python -m tests.release`, or with names (`chart sdist`) a part of it.

Each check does what somebody does who has just found tarry. What cannot be done on this machine is printed, with what
is missing. The exit status is 1 if a check failed. `make release-check` calls it.
"""
