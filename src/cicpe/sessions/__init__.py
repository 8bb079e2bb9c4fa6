"""Real campaigns, asked and told, and the stores that keep them."""
