"""What tests of stores are made of: jobs and flows, and steps with them."""
