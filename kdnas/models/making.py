"""One model at a time is made or loaded in a process.

While it loads a model, transformers replaces functions for the whole process: no weights are tied,
none are initialised. Two loads in threads put these back in the wrong order, and from then on every
model with tied weights is wrong without a word; a model that is made beside a load is wrong alone.
"""

from __future__ import annotations

from threading import RLock

MAKING_MODELS = RLock()
"""To be held around each ``from_pretrained`` and ``from_config`` of a model."""
