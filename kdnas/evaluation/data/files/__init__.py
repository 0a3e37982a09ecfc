"""Readers of one file each: rows of tables, sentences in columns, questions about contexts."""
