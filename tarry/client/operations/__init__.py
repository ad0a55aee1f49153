"""Changes of many jobs that run in the background, with progress, and go on if the process that runs them dies."""
