"""Jobs delivered to HTTP endpoints: on time, and again until they are accepted."""
