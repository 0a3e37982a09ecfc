"""The command line: one file a command. Heavy imports are inside functions, so help is quick."""
