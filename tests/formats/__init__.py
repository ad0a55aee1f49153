"""What programs of several versions read of each other, written down in `*.txt`: all that is stored, and what HTTP and
`tarry --json status` take and give.

A reader leaves out fields that it does not know, and takes the default of one that is missing. So within a version of
the formats a shape only grows: by fields with a default, in an array at its end. `make surface` writes that down.
Anything else takes another VERSION, an entry in CHANGELOG.md, and code that still reads what was written before.
Samples of what versions wrote are in `test_samples.py`, and what each computes for itself, as the shard of a job, in
`test_agreed.py`.
"""

VERSION = 1
