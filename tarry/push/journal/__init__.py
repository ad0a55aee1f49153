"""The logs of HTTP tasks, and the replay that restores jobs from them."""
