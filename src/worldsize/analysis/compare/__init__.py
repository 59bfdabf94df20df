"""Two runs, or a run and a stored baseline: never paired, so the drift between them is named (docs/compare.md)."""
