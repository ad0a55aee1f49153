"""Rules on an answer, in CEL or as PHP wrote them."""
