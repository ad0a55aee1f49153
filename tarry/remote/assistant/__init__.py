"""What assistants (programs that speak the Model Context Protocol) may do with a server, by its HTTP API."""
