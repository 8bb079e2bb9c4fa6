"""Networks: memories (history encoders), posterior heads and the critic."""
