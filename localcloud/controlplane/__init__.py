"""Starts and stops the local cloud; see localcloud/up."""
