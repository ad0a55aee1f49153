"""The stacks of worker processes: of one that is killed, and of one that goes on."""
