"""How many jobs wait, counted up to a bound: by the time at which they come due, by band, and before a job."""
