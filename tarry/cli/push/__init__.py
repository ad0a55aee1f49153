"""The commands about HTTP tasks and their deliveries."""
