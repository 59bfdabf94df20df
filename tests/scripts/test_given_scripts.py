"""What is given beside a script, or in its place: arguments with secrets, other interpreters, mistakes."""

import sysconfig
import venv
from pathlib import Path

import pytest

from in_process import worldsize
from own_loops import variables_of
from user_scripts import codes, put, run_of, studied
from worldsize.config.redact import safe_words
from worldsize.results.folder import load_run


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--script", "gone.py"), "there is no such file"),
        (("--script", "-m nowhere.at.all"), "no such module is found"),
        (("--script", ""), "a Python file and its arguments"),
        (("--script", "'train.py"), "with a quotation that does not end"),
        (("--script", "--fast train.py"), "a Python file and its arguments"),
        (("--script", "train.py", "--model", "resnet18x"), "leave out model"),
        (("--script", "train.py", "--epochs", "2"), "leave out epochs"),
        (("--script", "train.py", "--strategies", "ddp"), "a script synchronises in its own way"),
        (("--script", "train.py", "--batch-sizes", "8"), "leave out --batch-sizes"),
        (("--script", "train.py", "--threads-per-worker", "1"), "leave out --threads-per-worker"),
        (("--script", "torchrun --nproc-per-node 2 train.py"), "put {n} where torchrun is told the number of workers"),
        (("--script", "nowhere-run -n {n} train.py"), "there is no such program on the PATH"),
        (("--one-at-a-time",), "belongs to a script"),
        (("--samples-per-step", "8"), "belongs to a script"),
        (("--fail-above", "5%"), "give script twice, the old one first"),
        (("--script", "train.py", "--fail-above", "5%"), "give script twice, the old one first"),
        (("--script", "train.py", "--script", "train.py", "--fail-above", "150%"), "below 1"),
    ],
)
def test_what_was_given_wrongly(tmp_path: Path, flags: tuple[str, ...], told: str) -> None:
    put(tmp_path, "while True: step()")
    done = worldsize("study", *flags, "--out", "run", cwd=tmp_path)

    assert done.returncode == 2
    assert told in done.stderr
    assert not (tmp_path / "run" / "study.json").exists()


TORCHRUN = {**variables_of(0, 1), "MASTER_PORT": "0", "TORCHELASTIC_RUN_ID": "none"}
"""What it tells the processes that it starts; this one is refused before it meets another."""


def test_it_is_refused_under_torchrun(tmp_path: Path) -> None:
    put(tmp_path, "while True: step()")
    done = worldsize("study", "--script", "train.py", "--out", "run", cwd=tmp_path, **TORCHRUN)

    assert done.returncode == 2
    assert "torchrun has started the workers" in done.stderr


def test_it_resumes_and_refuses_another_script(tmp_path: Path) -> None:
    put(tmp_path, "while True: step()")
    run_of(tmp_path, studied(tmp_path, "train.py", sizes="1"))
    again = worldsize("study", "--resume", "--out", "run", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    put(tmp_path, "while True: step(0.001)")
    changed = worldsize("study", "--resume", "--out", "run", cwd=tmp_path)
    assert changed.returncode == 2
    assert "train.py has changed since" in changed.stderr


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("train.py --max-tokens 512 --key-dim=64", "train.py --max-tokens 512 --key-dim=64"),
        ("train.py wandb.api_key=abc +hf.token=hf_x lr=0.1", "train.py wandb.api_key=*** +hf.token=*** lr=0.1"),
        ("train.py --password 1234 --token abc", "train.py --password *** --token ***"),
        ("train.py --header 'Authorization: Bearer abc'", "train.py --header 'Authorization: Bearer ***'"),
    ],
)
def test_what_counts_as_a_secret(text: str, kept: str) -> None:
    assert safe_words(text) == kept


def test_secrets_among_its_arguments_are_not_kept_and_samples_may_be_given(tmp_path: Path) -> None:
    put(tmp_path, "assert sys.argv[1:] == ['--api-key', 'canary-7', '--rate', '1']\nwhile True: step()")
    script = "train.py --api-key canary-7 --rate 1"
    done = studied(tmp_path, script, "--samples-per-step", 48, sizes="1")
    for cell in run_of(tmp_path, done).cells.values():
        assert cell.record.batch_size == 48
        assert "samples-counted" not in codes(cell)

    assert "canary" not in done.stdout + done.stderr
    kept = [file for file in (tmp_path / "run").rglob("*") if file.is_file() and b"canary" in file.read_bytes()]
    assert not kept
    lost = worldsize("study", "--resume", "--out", "run", cwd=tmp_path)
    assert lost.returncode == 2
    assert "Give --script with the original text" in lost.stderr
    again = worldsize("study", "--resume", "--script", script, "--out", "run", cwd=tmp_path)
    assert again.returncode == 0, again.stderr


def test_another_interpreter_and_its_environment(tmp_path: Path) -> None:
    place = tmp_path / "environment"
    venv.create(place, with_pip=False, symlinks=True)
    packages = next(place.glob("lib/python*/site-packages"))
    (packages / "ours.pth").write_text(sysconfig.get_path("purelib"))
    (packages / "only_there.py").write_text("BATCH = 10\n")
    put(tmp_path, "import only_there\nwhile True: step()")
    python = place / "bin" / "python"
    cells = run_of(tmp_path, studied(tmp_path, f"{python} train.py", sizes="1")).cells
    assert {name: cell.record.state for name, cell in cells.items()} == {
        "train-python-w1": "complete",
        "train-w1": "complete",  # torchrun is that of its environment as well
    }

    (packages / "ours.pth").unlink()
    bare = worldsize("study", "--script", f"{python} train.py", "--world-sizes", 1, "--out", "other", cwd=tmp_path)
    assert bare.returncode == 1
    errors = [cell.record.error for cell in load_run(tmp_path / "other").cells.values()]
    assert all(error is not None and "No module named 'torch" in error.message for error in errors)
    gone = worldsize("study", "--script", "nowhere/bin/python train.py", "--out", "third", cwd=tmp_path)
    assert gone.returncode == 2
    assert "'nowhere/bin/python' was given; there is no such program" in gone.stderr
