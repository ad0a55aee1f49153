"""The listening sockets of a master: it opens them, and its servers accept at them."""
