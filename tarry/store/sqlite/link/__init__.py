"""The file: its connections, its log, and the room set aside for it."""
