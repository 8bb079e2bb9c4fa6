"""Real campaigns, asked and told."""
