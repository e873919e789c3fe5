"""What the parts of the HTTP server share: configuration, principals, events, refusals."""
