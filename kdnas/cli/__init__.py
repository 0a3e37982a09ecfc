"""The command line: one file a command, and rooms for what commands share.

Heavy imports are inside functions, so help is quick.
"""
