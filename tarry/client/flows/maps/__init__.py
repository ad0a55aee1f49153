"""A task that is called for many items: how they are divided into parts, and how a part runs."""
