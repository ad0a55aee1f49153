"""Seals what jobs say before any store sees it, and opens it for whoever has the key."""
