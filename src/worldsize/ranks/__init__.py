"""What every process of a group is, whatever it works on: its rank, cores and device, and the turns it takes."""
