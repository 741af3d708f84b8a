"""The card of an exported model, its README."""
