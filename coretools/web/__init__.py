"""The HTTP server: middleware, endpoint, tenants, reload."""
