"""The coordinator's side: puts requests together with workers and database, and runs them.

The web service (routes, dashboard) lives here too; nothing in this file loads it, since the
command line runs searches through the same functions.
"""
