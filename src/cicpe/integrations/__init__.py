"""Plug-ins for the tools of others. Each module needs the extra of its name."""
