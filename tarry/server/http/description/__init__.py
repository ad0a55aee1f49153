"""The OpenAPI document of the HTTP API, and the page for people that is made of it."""
