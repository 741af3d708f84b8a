"""A package, since TFDS wants a builder in one."""
