"""Pure values and rules: no I/O, no clock, no threads.

All times are integers: microseconds since the epoch, by the store's clock. All durations inside the model are
integers of microseconds too; what users write (`"5m"`, `300`, a timedelta) is turned into them by `duration`.
"""
