"""The arguments of a call: checked against the signature, written as JSON, and read back."""
