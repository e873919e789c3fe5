"""Tests of the application object and its public names."""
