"""What a store counted: a journal that grows with what is counted, and sums by minute, hour and day."""
