"""The commands as functions of Python, the settings that they take, and what they return (docs/python.md)."""
