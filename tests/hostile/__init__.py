"""What a stranger may send: texts of the worst kind, at each place that reads one."""
