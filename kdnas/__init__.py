"""kdnas: neural architecture search for knowledge distillation.

The library behind the command line, the workers and the service. It loads neither Ray nor a web
framework; see ``docs/architecture.md`` for the rooms of the house and who may import whom.
"""

__version__ = "0.1.0"

ENGINE_VERSION = "7"
"""Changes whenever the same request would give other losses; part of every loss's context."""
