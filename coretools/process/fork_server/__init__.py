"""The fork server: processes that wait in a namespace, and the pool that keeps them."""
