"""HTTP/1.1 without TLS, on the event loop itself. All else is the HTTP library's."""
