"""Make a page of docs/examples from a run of one of the four experiments: `python benchmarks/example.py RUN`.

The page holds what the report holds under the experiment's letter, as measured, and the command and machine behind it.
"""

import shlex
import sys
from itertools import pairwise
from pathlib import Path

from worldsize.analysis.study import analyse
from worldsize.analysis.verdict import verdict
from worldsize.report.contents import sections
from worldsize.report.tables import escaped, to_markdown
from worldsize.results.files import write_whole
from worldsize.results.folder import load_run
from worldsize.results.records import StudyRecord

EXAMPLES = Path(__file__).parent.parent / "docs" / "examples"
PRIVATE = ("--out", "--data-dir")
"""Flags whose values are paths of one machine."""


def command_of(words: tuple[str, ...]) -> str:
    """The command without the paths of the machine that it ran on."""
    kept = ["worldsize"]
    for before, word in pairwise(words):
        kept.append("FOLDER" if before in PRIVATE else word)
    return shlex.join(kept)


def _trained(record: StudyRecord) -> str:
    """The model and its data, as far as they are known."""
    return f"{record.model.name} on {record.data.name}; " if record.model and record.data else ""


def main(folder: Path) -> None:
    """Write the page and its charts."""
    analysis = analyse(load_run(folder))
    experiment = next(section for section in sections(analysis) if section.id.startswith("experiment-"))
    name = analysis.record.asked.experiment
    origin = analysis.record.provenance
    host = origin.host
    said = [
        f"# {experiment.title}\n",
        "An example, as measured; made by `benchmarks/example.py` from the run folder.\n",
        f"    {command_of(origin.command)}\n",
        f"{_trained(analysis.record)}{host.cpu_model}, {len(host.allowed_cores)} cores, torch {origin.torch_version}, "
        f"worldsize {origin.commit}, {origin.created[:10]}, load at the start {host.load_1min:.2f}.\n",
        f"**Verdict.** {escaped(verdict(analysis))}\n",
        *(f"{escaped(paragraph)}\n" for paragraph in experiment.paragraphs),
    ]
    for drawing in experiment.drawings:
        write_whole(EXAMPLES / f"{drawing.id}.svg", drawing.wide)
        said.append(f"![{drawing.title}]({drawing.id}.svg)\n")
    said += [to_markdown(table) for table in experiment.tables if table.rows]
    place = analysis.record.training[1].location or "FOLDER"
    warnings = dict.fromkeys(
        f"- {f'{cell}: ' if cell else ''}`{warning.code}`: {escaped(warning.message.replace(place, 'FOLDER'))}"
        for cell, warning in analysis.warnings
    )
    said.append("## Warnings of this run\n\n" + ("\n".join(warnings) or "None.") + "\n")
    write_whole(EXAMPLES / f"{name}.md", "\n".join(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
