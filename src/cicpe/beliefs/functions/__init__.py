"""A belief over functions of the query, by Gaussian processes."""
