"""What the master's children do: they load the app, work, keep order, watch."""
