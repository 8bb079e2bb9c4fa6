"""Decision-makers: one interface, the trained agent, its actor and stop rules."""
