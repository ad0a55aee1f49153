"""`tarry top`: a live dashboard in a terminal, or a single report."""
