"""Starts and stops the local cloud; see deploy/local/up."""
