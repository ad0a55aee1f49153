"""One request and its answer: allowed addresses, connections, signatures, errors."""
