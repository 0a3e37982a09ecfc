"""Sweeps: every state of a space, read or trained without a search."""
