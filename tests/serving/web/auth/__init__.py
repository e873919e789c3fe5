"""Who may call: tokens, what they open, and what is open without any."""
