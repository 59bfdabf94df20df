"""A layer over folders: all that was there can be read, and nothing of it is written to. All with real mounts."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kept import AS_NOBODY, NOBODY, kept, python_of_nobody, run
from worldsize.commands import overlay
from worldsize.commands.overlay import copy_folder, layers_for, remove_layer, why_no_overlay

OVERLAY = str(overlay.__file__)

WRITES = r"""
import ctypes, errno, mmap, os, shutil, subprocess, sys
from pathlib import Path
from typing import Any

home, renames = Path(sys.argv[1]), sys.argv[2] == "renames"
library = ctypes.CDLL(None, use_errno=True)
descriptor = library.open(os.fsencode(home / "from_c.bin"), os.O_RDWR)
assert library.write(descriptor, b"NEW", 3) == 3
with open("mapped.bin", "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
    memory[:3] = b"NEW"
with open(home / "project/appended.txt", "a") as file:
    file.write("more\n")
assert Path("appended.txt").read_text() == "old\nmore\n"
script = 'echo child >> "$1"; : > emptied.txt; echo new > made.txt'
subprocess.run(["sh", "-c", script, "sh", home / "notes.txt"], check=True)
assert (home / "notes.txt").read_text() == "old\nchild\n"
os.truncate("truncated.txt", 1)
os.chmod("mode.txt", 0o700)
os.utime("time.txt", (1, 1))
os.rename("renamed.txt", "other.txt")
os.replace("mode.txt", "replaced.txt")
os.unlink("gone.txt")
os.link("linked.txt", "second.txt")
with open("second.txt", "a") as file:
    file.write("more")
os.unlink("link")
os.symlink("made.txt", "link")
shutil.rmtree("removed")
os.mkdir("removed")
assert os.listdir("removed") == []
try:
    os.rename("folder", "moved")
except OSError as error:
    assert error.errno == errno.EXDEV and not renames
    shutil.move("folder", "moved")
assert Path("moved/deep/file.txt").read_text() == "old\n" and not os.path.exists("folder")
os.mkdir("fresh"); os.rename("fresh", "fresher")
Path(home, "project/runs/x/raw/record").write_text("raw")
subprocess.run(["find", home], check=True, stdout=subprocess.DEVNULL)
assert os.listdir("runs/x/layer") == []
print("done")
"""
FILES = ("appended", "emptied", "truncated", "mode", "time", "renamed", "replaced", "gone", "linked")


def make(home: Path) -> Path:
    """A home with a working folder in it, with runs in that; returns the working folder."""
    project = home / "project"
    for place in (project / "runs/x/raw", project / "runs/x/layer", project / "removed", project / "folder/deep"):
        place.mkdir(parents=True)
    for name in FILES:
        (project / f"{name}.txt").write_text("old\n")
    for place in (home / "notes.txt", project / "removed/file.txt", project / "folder/deep/file.txt"):
        place.write_text("old\n")
    for place in (home / "from_c.bin", project / "mapped.bin"):
        place.write_bytes(b"old" * 1000)
    (project / "link").symlink_to("linked.txt")
    return project


def state(folder: Path, *but: Path) -> dict[str, tuple[object, ...]]:
    """All of a folder: names, kinds and modes, owners, sizes, times, links and digests."""
    found: dict[str, tuple[object, ...]] = {}
    for each in sorted(folder.rglob("*")):
        if any(each.is_relative_to(left_out) for left_out in but):
            continue
        told = each.lstat()
        text = each.read_bytes() if each.is_file() and not each.is_symlink() else b""
        link = each.readlink() if each.is_symlink() else None
        times = told.st_mtime_ns if not each.is_dir() else None
        what = (told.st_mode, told.st_uid, told.st_nlink, told.st_size if text else 0, times, link)
        found[str(each.relative_to(folder))] = (*what, hashlib.sha256(text).hexdigest())
    return found


def needs_overlay(folder: Path) -> None:
    reason = why_no_overlay(folder)
    if reason:
        pytest.skip(reason)


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that any user can reach."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def nobody(place: Path) -> tuple[str, ...]:
    """What runs a Python as a user without rights."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user: this test runs as one without rights already")
    python = python_of_nobody()
    if python is None:
        pytest.skip("no Python here that the user nobody can run, with this package")
    os.chown(place, NOBODY, NOBODY)
    program = (*AS_NOBODY, python)
    done = subprocess.run(
        [*program, "-I", "-S", OVERLAY, place, *_trial(place, program)], capture_output=True, text=True
    )
    if done.returncode != 0:
        pytest.skip(f"no layer of a user without rights: {done.stdout.strip()}")
    return program


def _trial(place: Path, program: tuple[str, ...]) -> tuple[str, str]:
    layer = place / "trial"
    for name in ("upper", "work"):
        subprocess.run([*program, "-c", f"import os; os.makedirs({str(layer / name)!r})"], check=True)
    return str(layer), ".trial"


def give_to_nobody(folder: Path) -> None:
    for each in (folder, *folder.rglob("*")):
        os.chown(each, NOBODY, NOBODY, follow_symlinks=False)


def check_writes(home: Path, project: Path, program: tuple[str, ...], renames: str) -> None:
    """Run what writes everywhere; see that nothing of it came to the originals, and all to the layer."""
    layer, raw, logs = project / "runs/x/layer", project / "runs/x/raw", project / "runs/x"
    before = state(home, logs)
    words = (program[-1], "-I", "-S", "-c", WRITES, str(home), renames)
    spec = {"cwd": str(project), "overlays": [[str(home), str(layer)]], "shared": [str(raw)]}
    command, told = run(logs, *words, program=program, **spec)

    assert (command.text(), command.text("stderr")) == ("done\n", "")
    assert told[-1] == {"ended": 0}
    assert state(home, logs) == before
    assert (raw / "record").read_text() == "raw"
    assert (layer / "upper/from_c.bin").read_bytes() == b"NEW" + b"old" * 999
    assert (layer / "upper/project/mapped.bin").read_bytes() == b"NEW" + b"old" * 999
    assert (layer / "upper/project/appended.txt").read_text() == "old\nmore\n"
    assert (layer / "upper/notes.txt").read_text() == "old\nchild\n"
    assert (layer / "upper/project/made.txt").read_text() == "new\n"


def test_what_root_writes_reaches_no_original(place: Path) -> None:
    needs_overlay(place)
    check_writes(place / "home", make(place / "home"), (sys.executable,), "renames" if os.geteuid() == 0 else "copies")


def test_what_a_user_writes_reaches_no_original(place: Path, nobody: tuple[str, ...]) -> None:
    project = make(place / "home")
    give_to_nobody(place / "home")
    check_writes(place / "home", project, nobody, "copies")
    before = sorted(place.rglob("runs"))
    code = (
        f"import sys; sys.path.append({str(Path(OVERLAY).parent)!r}); import overlay; overlay.remove_layer(sys.argv[1])"
    )
    subprocess.run([*nobody, "-I", "-S", "-c", code, project / "runs/x/layer"], check=True)
    assert not (project / "runs/x/layer").exists()
    assert sorted(place.rglob("runs")) == before


def test_layers_of_two_folders_lie_in_one_of_them(place: Path) -> None:
    needs_overlay(place)
    home, work = place / "home", place / "work"
    runs = work / "runs/2024-01-01T10:00:00, a\\b ü"
    for folder in (home, runs / "one", runs / "two"):
        folder.mkdir(parents=True)
    for folder in (home, work):
        (folder / "file").write_text("old")
    before = state(home), state(work, runs)
    overlays = [[str(home), str(runs / "one")], [str(work), str(runs / "two")]]
    script = 'echo new > file; echo new > "$1/file"; cat "$1/file" file; find . > /dev/null'
    command, told = run(runs, "/bin/sh", "-ec", script, "sh", str(home), cwd=str(work), overlays=overlays)
    assert (told[-1], command.text(), command.text("stderr")) == ({"ended": 0}, "new\nnew\n", "")
    assert (state(home), state(work, runs)) == before
    assert [(runs / name / "upper/file").read_text() for name in ("one", "two")] == ["new\n", "new\n"]


def test_two_commands_at_once_see_nothing_of_each_other(place: Path) -> None:
    needs_overlay(place)
    (place / "file").write_text("old\n")
    script = 'echo "$1" >> file; touch "logs/$1/ready"; until [ -e "logs/$2/ready" ]; do sleep 0.01; done; cat file'
    with ExitStack() as stack:
        both = []
        for name, other in ("ab", "ba"):
            (place / "logs" / name).mkdir(parents=True, exist_ok=True)
            (place / "layers" / name).mkdir(parents=True)
            spec: dict[str, Any] = {
                "overlays": [[str(place), str(place / "layers" / name)]],
                "shared": [str(place / "logs")],
            }
            words = ("/bin/sh", "-c", script, "sh", name, other)
            both.append(stack.enter_context(kept(place / "logs" / name, *words, cwd=str(place), **spec)))
        assert [command.end()[-1] for command in both] == [{"ended": 0}] * 2
    assert [command.text() for command in both] == ["old\na\n", "old\nb\n"]
    assert (place / "file").read_text() == "old\n"


MOUNTS = """
set -e
mount -t tmpfs tmpfs "$1/disk"
mkdir -p "$1/disk/inner"
mount -t tmpfs tmpfs "$1/disk/inner"
echo old > "$1/disk/file"
echo old > "$1/disk/inner/file"
touch "$1/single"
mount --bind "$2" "$1/single"
"$3" -I -S -c "$4" "$1"
cat "$1/disk/file" "$1/disk/inner/file" "$1/single"
ls "$1/disk" "$1/disk/inner"
"""
WRITES_TO_MOUNTS = f"""
import sys; sys.path.append({str(Path(OVERLAY).parent)!r})
import os, overlay
home = sys.argv[1]
overlay.mount_overlays([(home, home + "/layer")])
for name in ("disk", "disk/inner"):
    with open(f"{{home}}/{{name}}/file", "a") as file: file.write("new")
    assert open(f"{{home}}/{{name}}/file").read() == "old\\nnew"
    os.mkdir(f"{{home}}/{{name}}/made")
assert open(home + "/single").read() == "single\\n"
try: open(home + "/single", "a")
except OSError as error: print(error.strerror)
"""


def test_what_is_mounted_below_a_folder_is_kept_as_well(place: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root mounts file systems")
    needs_overlay(place)
    (place / "home/disk").mkdir(parents=True)
    (place / "single").write_text("single\n")
    words = (str(place / "home"), str(place / "single"), sys.executable, WRITES_TO_MOUNTS)
    done = subprocess.run(["unshare", "-m", "sh", "-c", MOUNTS, "sh", *words], capture_output=True, text=True)
    assert done.stderr == ""
    listed = f"{place}/home/disk:\nfile\ninner\n\n{place}/home/disk/inner:\nfile\n"
    assert done.stdout == f"Read-only file system\nold\nold\nsingle\n{listed}"
    remove_layer(place / "home/layer")


def test_reasons_why_there_is_no_layer(place: Path, nobody: tuple[str, ...]) -> None:
    folders = [place / name for name in ("home/disk", "home/layer/upper", "home/layer/work", "upper", "work", "it")]
    for folder in folders:
        folder.mkdir(parents=True)
    give_to_nobody(place / "home")
    trial = f"-I -S {OVERLAY} $1/home $1/home/layer .trial"
    mounted = f"mount -t tmpfs tmpfs $1/home/disk; {' '.join(nobody)} {trial}"
    said = _in_mounts(mounted, place)
    assert said == f"{place}/home/disk is mounted below {place}/home, which takes root\n"

    nested = (
        "mount -t overlay overlay -o lowerdir=$1/home,upperdir=$1/upper,workdir=$1/work $1/it;"
        f"{sys.executable} -I -S {OVERLAY} $1/it $1/it/layer .trial"
    )
    assert _in_mounts(nested, place).startswith(f"{place}/it/layer lies on an overlay itself, as in a container")


def _in_mounts(script: str, place: Path) -> str:
    done = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", place], capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout


def test_a_folder_that_cannot_have_a_layer(tmp_path: Path) -> None:
    needs_overlay(tmp_path)
    assert why_no_overlay("/", tmp_path) == "a layer over / does not cover it"
    assert why_no_overlay(tmp_path / "none") == f"{tmp_path / 'none'} is no folder"
    assert "no layer can be made in /proc/" in (why_no_overlay(tmp_path, "/proc") or "")
    assert list(tmp_path.iterdir()) == []
    assert not list(Path("/").glob(".trial*"))


def test_a_refused_layer_is_told_by_the_keeper(tmp_path: Path) -> None:
    _, told = run(tmp_path, "true", overlays=[["/", "/proc/layer"]])
    assert told == [{"failed": "no layer can be made in /proc/layer: No such file or directory"}]


def test_an_outer_folder_covers_an_inner_one(tmp_path: Path) -> None:
    inner, other = tmp_path / "home/project", tmp_path / "home-2"
    for folder in (inner, other):
        folder.mkdir(parents=True)
    (tmp_path / "link").symlink_to(inner)
    assert layers_for([inner, other, tmp_path / "home", tmp_path / "link"]) == [tmp_path / "home", other]
    assert layers_for([]) == []


def test_a_copy_is_one_of_files(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "source/results/x/copy"
    make(tmp_path / "source")
    for name in (".git", "env", "old-run", "project/.hidden"):
        (source / name).mkdir()
        (source / name / "file").write_text("there")
    (source / "env/pyvenv.cfg").touch()
    (source / "old-run/study.json").touch()
    (source / "outside").symlink_to(tmp_path / "other.txt")
    (tmp_path / "other.txt").write_text("outside")
    (source / "circle").symlink_to("project")
    (source / "up").symlink_to(tmp_path)
    (source / "dangling").symlink_to("nowhere")
    (source / "project/mode.txt").chmod(0o640)
    before = state(source, source / "results")

    links = copy_folder(source, target)
    assert links == [target / "dangling", target / "up"]
    assert {each.name for each in target.iterdir()} == {
        *("project", "notes.txt", "from_c.bin", "outside", "circle", "up", "dangling", "results")
    }
    assert not (target / "results/x/copy").exists()
    assert (target / "project/mode.txt").stat().st_mode & 0o777 == 0o640
    assert (target / "project/.hidden/file").read_text() == "there"
    assert (target / "circle").resolve() == target / "project"
    for each in target.rglob("*.txt"):
        each.write_text("new")
    (target / "outside").write_text("new")
    assert state(source, source / "results") == before
    assert (tmp_path / "other.txt").read_text() == "outside"


def test_what_is_large_becomes_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source"
    (source / "many").mkdir(parents=True)
    for name in ("many/a", "many/b", "many/c", "small", "large", "third"):
        (source / name).write_bytes(b"x" * (100 if name == "large" else 10))
    monkeypatch.setattr(overlay, "MAX_FILE_BYTES", 50)
    monkeypatch.setattr(overlay, "MAX_IN_A_FOLDER", 2)
    assert copy_folder(source, tmp_path / "one") == [tmp_path / "one/large", tmp_path / "one/many"]
    assert (tmp_path / "one/large").readlink() == source / "large"
    monkeypatch.setattr(overlay, "MAX_BYTES", 15)
    assert copy_folder(source, tmp_path / "two") == [tmp_path / f"two/{name}" for name in ("large", "many", "third")]
    shutil.rmtree(tmp_path / "two")
    assert (source / "many/a").exists()
