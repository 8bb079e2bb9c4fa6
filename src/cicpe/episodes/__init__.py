"""Episodes: one function plays them, and the tables that its steps are kept in."""
