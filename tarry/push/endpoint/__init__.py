"""An endpoint: its settings, secrets, templates and schedules."""
