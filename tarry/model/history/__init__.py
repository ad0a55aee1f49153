"""What is counted of jobs and changes: kinds, and durations in buckets."""
