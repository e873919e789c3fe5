"""Commands that outlive a call: job table, stored output, screen."""
