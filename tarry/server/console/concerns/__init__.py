"""What needs attention: the lines at the top of the overview."""
