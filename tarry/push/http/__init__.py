"""One request and its answer: addresses that are allowed, connections, signatures, errors."""
