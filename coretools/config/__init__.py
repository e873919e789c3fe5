"""Settings, flags and the policy file."""
