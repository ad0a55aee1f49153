"""The console: pages for people, made of what the HTTP API's methods answer. It has no rules and no data of its own."""
