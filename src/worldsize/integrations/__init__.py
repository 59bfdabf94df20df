"""`worldsize.meter` for loops that a framework owns; importing this imports none of them (docs/integrations.md)."""
