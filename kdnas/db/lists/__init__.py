"""Lists of what is stored, a page at a time, as plain rows."""
