"""Commands that outlive a call: the job table, stored output and screens."""
