"""How the tables came to be, step by step (alembic). Applied when a store is opened; users need no alembic.ini."""
