"""What is audited: a file of tables, the text of standard input, or the tables of a run folder."""

from pathlib import Path

from worldsize.analysis.audit.answer import Audit
from worldsize.analysis.audit.asked import audit_as_asked
from worldsize.config import AuditSettings
from worldsize.documents.document import Document
from worldsize.documents.read import read


def audited(source: str, settings: AuditSettings, text: str | None = None) -> Audit:
    """The audit of a file, of a run folder, or of `text` where it is given.

    Raises UsageError for what is not allowed or holds no table, OutputError for a folder that is no run.
    """
    if text is None and Path(source).is_dir():
        return audit_as_asked(run_document(Path(source)), settings)
    return audit_as_asked(read(source, text=text, format=settings.format), settings)


def run_document(run: Path) -> Document:
    """The verdict and the tables of a run, as its report writes them (`summary.md`).

    Raises OutputError for a folder that is no run, UsageError for a run without a table.
    """
    from worldsize.analysis.study import analyse
    from worldsize.report.contents import sections
    from worldsize.report.write import summary_markdown
    from worldsize.results.folder import load_run

    analysis = analyse(load_run(run))
    return read(str(run), text=summary_markdown(analysis, sections(analysis)), format="markdown")
