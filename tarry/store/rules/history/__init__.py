"""What stores count, over time: the verbs, and their records."""
