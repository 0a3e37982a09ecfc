"""A student cut from its teacher, whatever its architecture: no gradient, seconds of work."""
