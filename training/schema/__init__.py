"""What a recipe may say: its tables and keys, checked when it is read."""
