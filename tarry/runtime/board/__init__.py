"""The scoreboard: what every process of a master does, in a mapped file beside the pid file."""
