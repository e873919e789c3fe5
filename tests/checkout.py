"""The directory of the checkout under test."""

from pathlib import Path

TREE = Path(__file__).parent.parent
