"""Plain values that settings hold."""
