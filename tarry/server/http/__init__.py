"""The HTTP API: each of its methods is described once, and from that come its route, its checks and its OpenAPI."""
