"""The logs of deliveries, and what brings them back."""
