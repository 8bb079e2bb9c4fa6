"""Campaigns and their events."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Makes both tables."""
    op.create_table(
        "cicpe_campaigns",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("name", sa.String(64), nullable=False, unique=True),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("model_sha256", sa.String(64), nullable=False),
        sa.Column("epsilon", sa.Double, nullable=False),
        sa.Column("delta", sa.Double, nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("stop", sa.String(16), nullable=False),
        sa.Column("context", sa.JSON, nullable=False),
        sa.Column("created", sa.String(32), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
    )
    op.create_table(
        "cicpe_events",
        sa.Column("campaign_id", sa.String(32), sa.ForeignKey("cicpe_campaigns.id"), primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("payload", sa.JSON, nullable=False),
        sa.Column("key", sa.String(200)),
        sa.Column("at", sa.String(32), nullable=False),
        sa.UniqueConstraint("campaign_id", "key", name="cicpe_events_key"),
    )


def downgrade() -> None:
    """Nobody's data is deleted by a program."""
    raise NotImplementedError("there is no way back before the first version")
