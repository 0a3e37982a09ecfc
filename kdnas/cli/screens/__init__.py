"""What commands show while they work, and of what came out."""
