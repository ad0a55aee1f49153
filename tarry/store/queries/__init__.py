"""What is asked of any store, by its verbs."""
