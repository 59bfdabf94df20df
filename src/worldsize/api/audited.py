"""An audit as a script or a notebook has it in hand."""

from dataclasses import fields
from pathlib import Path
from typing import Self

from markupsafe import escape

from worldsize.analysis.audit.answer import Audit
from worldsize.analysis.audit.findings import Verdict
from worldsize.report.audit_parts import headline


class Audited(Audit):
    """What was read in a document, what is wrong, and how many checks held (docs/audit.md).

    `findings` are the worst first, `holds` says whether none is worse than missing. As the last line of a notebook's
    cell it shows them.
    """

    @classmethod
    def of(cls, found: Audit) -> Self:
        """The same audit."""
        return cls(**{field.name: getattr(found, field.name) for field in fields(found)})

    def write_page(self, path: Path | str) -> Path:
        """Write the page, one HTML file, and return its path; raises OutputError where it cannot be written."""
        from worldsize.report.audit_page import write_audit_page

        write_audit_page(self, Path(path))
        return Path(path)

    @property
    def markdown(self) -> str:
        """Findings and tables as Markdown."""
        from worldsize.report.audit_text import audit_markdown

        return audit_markdown(self)

    def __repr__(self) -> str:
        lines = [f"{each.verdict} {each.rule}: {each.says}" for each in self.findings]
        return "\n".join([headline(self), *lines])

    def _repr_html_(self) -> str:
        """For a notebook: no script, no network."""
        rows = "".join(
            f"<tr><td><b>{each.verdict}</b></td><td>{'' if each.table is None else each.table + 1}</td>"
            f'<td style="text-align:left">{escape(each.says)}</td></tr>'
            for each in self.findings
            if each.verdict is not Verdict.MISSING
        )
        table = f"<table><tr><th></th><th>Table</th><th></th></tr>{rows}</table>" if rows else ""
        return f"<p><b>{escape(headline(self))}</b></p>{table}"
