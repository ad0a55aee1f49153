"""A shop on Django: an order, its mail and the release of what nobody pays, in one database and its transactions."""
