"""`tarry top`: the live picture in a terminal, or one look at it."""
