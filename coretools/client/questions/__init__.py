"""Answers to what servers ask: forms for a person, and requests for a model."""
