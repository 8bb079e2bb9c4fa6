"""Old surveys as a source of tasks: reading them, fitting a field to each region, keeping the fits.

``survey`` reads measurements, ``regions`` puts them into unit squares, ``fields`` fits a Gaussian process to each,
``sampling`` evaluates and simulates on a grid, ``collection`` keeps all of it on disk under a name, and ``splits``
says which regions are for training. ``synthetic`` writes surveys that nobody made.
"""
