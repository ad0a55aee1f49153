"""Ways in for other programs: a door turns bytes into the client's verbs, and answers into bytes."""
