"""`tarry store`."""
