"""Cells as local jobs: what is left of one that was ended to make room for another."""

import contextlib
from pathlib import Path

from tiny import tiny_settings
from worldsize.launch.placement import place
from worldsize.measure.machine import allowed_cores
from worldsize.ranks.turns import Turn
from worldsize.results.checkpoints import checkpoint_folder
from worldsize.results.files import cell_folder
from worldsize.study.job_executor import JobExecutor
from worldsize.study.plan import PlannedCell


def test_a_training_that_made_room_goes_on_where_it_was(tmp_path: Path) -> None:
    """Also without --checkpoint; nothing is left of it then."""
    settings = tiny_settings(tmp_path, epochs=2, train_samples=64)
    placement = place(world_size=1, processes=1, threads_per_worker=1, cores=allowed_cores(), gpus=0, backend="auto")
    cell = PlannedCell(settings, placement)
    folder = checkpoint_folder(cell_folder(tmp_path, cell.id))
    with contextlib.closing(JobExecutor(tmp_path, 0)) as executor:
        assert executor.facts(cell)[0].steps == 0
        executor.take(cell, Turn(op="epoch"), lambda: None)
        executor._evict()
        assert not executor.alive(cell)
        assert executor.facts(cell)[0].steps == 4
        executor.take(cell, Turn(op="epoch", first_step=4), lambda: None)
        assert folder.exists()
        executor.finish(cell)
    assert not folder.exists()
