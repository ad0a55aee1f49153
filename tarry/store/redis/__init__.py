"""The store in Redis or Valkey: one server, one that sentinels watch, or a cluster."""
