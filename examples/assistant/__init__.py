"""An assistant that uses tools, asks a person before it gives money back, and forgets nothing in a crash."""
