"""Documents that others wrote: their tables and the words around them, in one form whatever the format."""
