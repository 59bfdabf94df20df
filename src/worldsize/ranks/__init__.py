"""What every process of a group has, with any workload: its rank, cores and device, and the turns it takes."""

STARTED_BY_HAND = "WORLDSIZE_BY_HAND"
"""Set where a user has started each rank by a command of its own (launch/by_hand.py)."""
