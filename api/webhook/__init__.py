"""The webhook: telling a web server of the user's that a search, a distillation and the like ended.

``telling`` writes a message of each end and sends one after the other, ``receiver`` posts it where
it may go (``addresses``), ``signing`` proves who sends it, ``routes`` show what came of each.
"""
