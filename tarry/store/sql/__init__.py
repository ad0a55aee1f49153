"""What the stores in SQL databases share."""
