"""The error that ends a measurement which would mean nothing."""


class NotMeasured(Exception):
    """A contender did not do what is timed: it refused a call, died, or did not respond."""
