"""What alembic runs: the migrations, on the connection and in the transaction of whoever opens the store."""

from alembic import context

from cicpe.sessions.stores.schema import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata, version_table=VERSION_TABLE
)
context.run_migrations()
