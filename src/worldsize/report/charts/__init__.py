"""The charts of a report by subject, as definitions; `report.svg` draws them.

Cells are drawn together where they compare: those of one `analysis.groups.Group`.
"""
