"""Find text and names beneath the roots."""
