"""Tests of commands on trial."""
