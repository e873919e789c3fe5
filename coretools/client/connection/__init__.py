"""The connection to one server: transports, negotiation, requests, lists and logs."""
