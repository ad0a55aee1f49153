"""`python -m bench`: every figure that tarry claims, measured in one run beside the raw limit of the store below it."""
