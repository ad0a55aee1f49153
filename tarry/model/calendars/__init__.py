"""Days on which schedules may tick. Imports nothing but the model."""
