"""What several commands need: what they print, the times they take, and how they wait for a master."""
