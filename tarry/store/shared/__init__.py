"""What stores have in common."""
