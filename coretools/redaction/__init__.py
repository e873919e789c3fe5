"""Secrets in text: patterns, names and the redactor."""
