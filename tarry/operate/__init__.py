"""What people and programs may do to a running system: each method once, for every way in."""
