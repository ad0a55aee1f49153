"""What is checked of a job before it changes, and of what is stored of it."""
