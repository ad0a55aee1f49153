"""From a call by Celery's names to what is stored: values, options, routes, headers."""
