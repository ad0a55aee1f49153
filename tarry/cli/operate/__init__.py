"""Commands made of methods: each subject says how its answers look on a terminal."""
