"""Whether a published scaling table holds: what its numbers mean, and what they say of each other (method.md §16)."""
