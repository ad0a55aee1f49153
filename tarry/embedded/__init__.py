"""Workers without a master: beside a program, or until nothing is left."""
