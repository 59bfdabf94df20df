import time

BEGAN_S = time.monotonic()
"""When the command began: its budget counts from here."""
