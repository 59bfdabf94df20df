"""Two sides of runs, or runs and a stored baseline: never paired, with the run as the unit (docs/compare.md)."""
