"""Where the checkout under test is."""

from pathlib import Path

TREE = Path(__file__).parent.parent
