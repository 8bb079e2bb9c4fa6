"""Campaigns over HTTP, and the page that a lab keeps open."""
