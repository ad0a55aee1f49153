"""What an endpoint is: its settings, secrets, templates and schedules."""
