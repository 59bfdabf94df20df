"""What the HTML pages have in common: their templates, and that they load nothing."""

from jinja2 import Environment, PackageLoader, StrictUndefined

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""Content-Security-Policy: a browser loads nothing for a page from anywhere."""


def environment() -> Environment:
    """Finds templates, escapes every text, and ends at a name that is not given."""
    return Environment(
        loader=PackageLoader("worldsize.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
