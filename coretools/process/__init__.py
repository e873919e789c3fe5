"""Run children, stop them, keep what they wrote."""
