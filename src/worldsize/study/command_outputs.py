"""What a command writes, so that it reaches no original: a layer over the person's folders, or a copy of them."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from worldsize.commands import overlay
from worldsize.config import CommandSettings
from worldsize.errors import OutputError
from worldsize.results.files import cell_folder, outputs_folder
from worldsize.results.records import WarningRecord
from worldsize.study.plan import PlannedCell

LAYERS = "layers"
"""In the job of a cell: the layers, or the copy, of its present launch."""


@dataclass
class Outputs:
    """Decides once for a study where its commands write, and keeps or removes what they have written."""

    run: Path
    in_place: bool
    here: Path = field(default_factory=Path.cwd)
    warnings: list[WarningRecord] = field(default_factory=list)
    """What a reader must know of it."""

    def __post_init__(self) -> None:
        self._why_not: str | None = None
        self._folders = [] if self.in_place else overlay.layers_for(_folders(self.here))
        for folder in self._folders:
            self._why_not = self._why_not or overlay.why_no_overlay(folder, self.run)

    def prepare(self, cell: PlannedCell) -> tuple[Path, list[tuple[Path, Path]]]:
        """Return where a command begins, and the layers over which folders it gets; raises OutputError."""
        if self.in_place:
            return self.here, []
        place = self._layers(cell)
        overlay.remove_layer(place)
        if self._why_not is None:
            return self.here, [(folder, place / str(number)) for number, folder in enumerate(self._folders)]
        try:
            linked = overlay.copy_folder(self.here, place / "copy")
        except OSError as error:
            raise OutputError(f"cannot copy {self.here} to {place}: {error.strerror}: {error.filename}") from None
        self._warn(linked)
        return place / "copy", []

    def _warn(self, linked: list[Path]) -> None:
        """Say that files may be overwritten which a copy does not hold."""
        some = ", ".join(str(each) for each in linked[:3])
        more = f" and {len(linked) - 3} more" if len(linked) > 3 else ""
        links = f" Links lead to {some}{more}." if linked else ""
        text = f"The commands work in a copy of {self.here}, and can overwrite files elsewhere: {self._why_not}.{links}"
        if not self.warnings:
            self.warnings.append(WarningRecord(code="writes-to-copy", message=text))

    def close(self, cell: PlannedCell, program: CommandSettings) -> None:
        """Keep what a command has written in its working folder, or remove it."""
        place = self._layers(cell)
        written = place / "copy"
        for number, folder in enumerate(self._folders if self._why_not is None else []):
            if self.here.resolve().is_relative_to(folder):
                written = place / str(number) / overlay.UPPER / self.here.resolve().relative_to(folder)
        if program.keep_outputs and written.exists():
            target = outputs_folder(cell_folder(self.run, cell.id))
            shutil.rmtree(target, ignore_errors=True)
            shutil.move(written, target)
        overlay.remove_layer(place)

    def _layers(self, cell: PlannedCell) -> Path:
        return cell_folder(self.run, cell.id).absolute() / "job" / LAYERS


def _folders(here: Path) -> list[Path]:
    """The folders of a person that a command may write to: where it begins, and the home."""
    home = Path.home()
    return [here, *([home] if home.is_dir() and home != Path(home.root) else [])]
