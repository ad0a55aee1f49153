"""The pages and acts of the console, by subject. Each module ends with `PAGES` and `ACTS` of its own."""
