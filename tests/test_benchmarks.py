"""`benchmarks/run.py`: what one benchmark does to its process, or its end, changes nothing for those after it."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
RUN = """
    import sys
    import run
    run.NAMES = run.QUICK = {names!r}
    sys.argv = ["run.py"]
    raise SystemExit(run.main())
"""


def run(folder: Path, **bodies: str) -> subprocess.CompletedProcess[str]:
    for name, body in bodies.items():
        lines = textwrap.indent(textwrap.dedent(body), "    ")
        (folder / f"{name}.py").write_text(f"import os, sys, torch\n\n\ndef run(data_dir):\n{lines}\n")
    code = textwrap.dedent(RUN).format(names=tuple(bodies))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (folder, BENCHMARKS, *sys.path)))}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_what_one_sets_of_its_process_does_not_reach_the_next(tmp_path: Path) -> None:
    told = "print('told', sorted(os.sched_getaffinity(0)), torch.get_num_threads(), os.environ.get('PLANTED'))"
    sets = "os.sched_setaffinity(0, {0})\ntorch.set_num_threads(1)\nos.environ['PLANTED'] = '1'\n" + told
    done = run(tmp_path, before=told, sets=sets, after=told)
    before, _, after = [line for line in done.stdout.splitlines() if line.startswith("told")]
    assert after == before, done.stderr
    assert done.returncode == 0


def test_one_that_breaks_does_not_stop_the_next_and_is_named(tmp_path: Path) -> None:
    done = run(tmp_path, breaks="raise OSError('planted')", dies="os._exit(9)", after="print('reached')")
    assert "reached" in done.stdout
    assert "broken: breaks, dies" in done.stdout
    assert "OSError: planted" in done.stderr
    assert done.returncode == 1


def test_an_interruption_ends_all(tmp_path: Path) -> None:
    for stops in ("raise KeyboardInterrupt", "import signal\nos.kill(os.getppid(), signal.SIGTERM)\nsignal.pause()"):
        done = run(tmp_path, stops=stops, after="print('reached')")
        assert "reached" not in done.stdout
        assert done.returncode == 130
