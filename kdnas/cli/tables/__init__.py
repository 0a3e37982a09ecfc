"""Rows as text: on stdout, or in a file."""
