"""What ends a measurement that would mean nothing."""


class NotMeasured(Exception):
    """A contender did not do what it is timed for: refused a call, died, did not answer."""
