"""All SQL of the program: functions over a session that flush and never commit.

The outermost caller opens the one transaction, with ``Database.write()`` or ``Database.read()``.
Every function that changes something appends its event last: events are numbered in the order of
their commits, and the lock that sees to it is held until the commit.
"""
