"""What a user may ask for: frozen pydantic models, presets, and one way to read them."""
