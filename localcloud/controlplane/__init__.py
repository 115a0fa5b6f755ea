"""Starts and stops the local cloud. See localcloud/up."""
