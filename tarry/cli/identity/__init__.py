"""The commands about who may do what through the doors."""
