"""`tarry import`: jobs from the broker of another library."""
