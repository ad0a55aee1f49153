"""Items and their orders."""
