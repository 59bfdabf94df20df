"""A layer over the folders of a person: a command sees all of them, and what it writes lands in the layer.

The kernel does it (overlayfs), so it holds for whatever writes: Python, C, a child process, an absolute path. Where
the kernel refuses, `copy_folder` makes a copy. Standard library only: keeper.py uses it between fork and exec.
"""

import ctypes
import errno
import os
import re
import shutil
import sys
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

UPPER, WORK = "upper", "work"
"""In a layer's folder: what was written, and what the kernel needs for itself."""
BELOW = "below"
"""In a layer's folder: the layers of the file systems that are mounted below the original."""
PATIENCE_S = 30.0
UNTOUCHED = ("proc", "sysfs", "devtmpfs", "devpts", "mqueue", "cgroup", "cgroup2", "debugfs", "tracefs", "securityfs")
"""File systems that hold no files of a person."""
MAX_ENTRIES, MAX_IN_A_FOLDER = 20_000, 1_000
"""Files and folders that are copied, all together and of one folder. Larger folders hold data."""
MAX_FILE_BYTES, MAX_BYTES = 2**28, 2**30
"""What is copied of one file, and all together: copying takes 5 s a GiB."""
LEFT_OUT = ("__pycache__", "node_modules", "runs", "wandb", "mlruns", "site-packages")
"""Folders of outputs, which a command makes anew, and of what is installed."""

_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 1 << 5, 1 << 12, 1 << 14, 1 << 18
_CLONE_NEWNS, _CLONE_NEWUSER = 0x20000, 0x10000000
_ESCAPED = re.compile(r"\\([0-7]{3})")


class OverlayError(Exception):
    """The kernel refuses; the text is one plain sentence."""


class Mount(NamedTuple):
    """A place where a file system is mounted."""

    point: Path
    kind: str


def mount_overlays(overlays: Sequence[tuple[str, str]], shared: Sequence[str] = ()) -> None:
    """Put a layer over each original folder, for this process and those that it starts from now on.

    Of each pair (original, layer), what is written below the original lands in `layer/upper`. The `shared` folders
    stay as they are, also below an original. Call it in a process of one thread, and change to a folder afterwards:
    the present one is still the original. Raises OverlayError.
    """
    pairs = [(Path(original).resolve(), Path(layer).resolve()) for original, layer in overlays]
    for _, layer in pairs:
        _make_layer(layer)
    as_root = _own_mounts()
    try:
        # What is opened now stays reachable: the first overlay covers paths that the second needs.
        opened = [(path, _open(path)) for path in (Path(each).resolve() for each in shared)]
        for planned, below in _plan(pairs, _mounts()):
            planned.mount(as_root=as_root)
            for mount, again in below:
                _mount_again(mount, again, as_root=as_root)
        for _, layer in pairs:
            if any(layer.is_relative_to(original) for original, _ in pairs):
                _hide(layer)
        for path, descriptor in opened:
            path.mkdir(parents=True, exist_ok=True)  # below a layer that is hidden
            _mount(f"/proc/self/fd/{descriptor}", path, None, _MS_BIND | _MS_REC)
            os.close(descriptor)
    except OSError as error:
        raise OverlayError(f"the layers cannot be mounted: {error.strerror}") from None


def why_no_overlay(folder: str | Path, layer: str | Path | None = None) -> str | None:
    """Return why no layer can be put over a folder, in a sentence; None where one can, tried in another process.

    `layer` is a folder in which layers will lie; the trial leaves nothing there. By default it is the folder itself.
    """
    import subprocess  # here: the keeper, which starts many a time, needs none

    name = f".trial-{os.getpid()}-{os.urandom(4).hex()}"
    place = Path(layer or folder).resolve() / f"{name}-layer"
    if not Path(folder).is_dir():
        return f"{folder} is no folder"
    try:
        _make_layer(place)
        # A program, no fork: threads of the caller may hold locks.
        command = [sys.executable, "-I", "-S", __file__, str(Path(folder).resolve()), str(place), name]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        if done.returncode != 0:
            return done.stdout.strip() or (done.stderr.strip().splitlines() or ["the trial said nothing"])[-1]
        if not (place / UPPER / name).exists():
            return f"what is written in {folder} does not land in the layer"
    except (OSError, subprocess.SubprocessError) as error:
        return f"no layer over {folder} can be tried: {error}"
    except OverlayError as error:
        return str(error)
    finally:
        remove_layer(place)
    return None


def layers_for(folders: Iterable[str | Path]) -> list[Path]:
    """Return the folders that need a layer of their own: one below another is covered by that one's."""
    real = sorted({Path(folder).resolve() for folder in folders})
    return [each for each in real if not any(each != other and each.is_relative_to(other) for other in real)]


def remove_layer(layer: str | Path) -> None:
    """Remove the folder of a layer, also what the kernel or the command has left there without rights."""
    for place, names, _ in os.walk(layer):
        for name in names:
            if not Path(place, name).is_symlink():
                with suppress(OSError):
                    Path(place, name).chmod(0o700)
    shutil.rmtree(layer, ignore_errors=True)


class _Planned:
    """An overlay that is about to be mounted. It names folders by descriptors: a path may hold commas and colons."""

    def __init__(self, original: Path, layer: Path) -> None:
        self._original, self._layer = original, layer
        self._folders = [_open(place) for place in (original, layer / UPPER, layer / WORK)]

    def mount(self, *, as_root: bool) -> None:
        """Mount it. Raises OverlayError."""
        names = zip(("lowerdir", "upperdir", "workdir"), self._folders, strict=True)
        options = ",".join(f"{name}=/proc/self/fd/{descriptor}" for name, descriptor in names)
        try:
            self._mount(options, as_root=as_root)
            # Over the root of all, it is mounted where no path leads.
            covered = self._original.stat().st_dev != os.fstat(self._folders[0]).st_dev
        except OSError as error:
            raise OverlayError(_reason(error, self._original, self._layer, as_root=as_root)) from None
        finally:
            for descriptor in self._folders:
                os.close(descriptor)
        if not covered:
            raise OverlayError(f"a layer over {self._original} does not cover it")
        if os.statvfs(self._original).f_flag & os.ST_RDONLY:  # the file system of the layer cannot hold all of it
            raise OverlayError(f"the kernel makes the layer over {self._original} read-only")

    def _mount(self, options: str, *, as_root: bool) -> None:
        if not as_root:
            return _mount("overlay", self._original, "overlay", 0, f"{options},userxattr")
        try:  # with redirects, which take root, also a folder that was there before can be renamed
            return _mount("overlay", self._original, "overlay", 0, f"{options},redirect_dir=on")
        except OSError:
            return _mount("overlay", self._original, "overlay", 0, options)


_Again = _Planned | int
"""How something is mounted once more: with a layer, or as it is, given as a descriptor."""


def _plan(
    pairs: Sequence[tuple[Path, Path]], mounts: Sequence[Mount]
) -> list[tuple[_Planned, list[tuple[Mount, _Again]]]]:
    return [(_Planned(original, layer), _below(original, layer, mounts)) for original, layer in pairs]


def _below(original: Path, layer: Path, mounts: Sequence[Mount]) -> list[tuple[Mount, _Again]]:
    """Open what is mounted below an original: an overlay shows one file system, and those would be gone."""
    found: list[tuple[Mount, _Again]] = []
    for number, mount in enumerate(mounts):
        if mount.point == original or not mount.point.is_relative_to(original):
            continue
        with suppress(OSError):  # of another user, or covered by a later mount
            if mount.kind in UNTOUCHED or not mount.point.is_dir():
                found.append((mount, os.open(mount.point, os.O_PATH | os.O_CLOEXEC)))
            else:
                _make_layer(layer / BELOW / str(number))
                found.append((mount, _Planned(mount.point, layer / BELOW / str(number))))
    return found


def _mount_again(mount: Mount, again: _Again, *, as_root: bool) -> None:
    """Mount what was below an original. A single file can have no layer: it becomes one to read."""
    if not isinstance(again, int):
        return again.mount(as_root=as_root)
    _mount(f"/proc/self/fd/{again}", mount.point, None, _MS_BIND)
    os.close(again)
    if mount.kind not in UNTOUCHED:
        _mount(None, mount.point, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY)
    return None


def _make_layer(layer: Path) -> None:
    try:
        for name in (UPPER, WORK):
            (layer / name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OverlayError(f"no layer can be made in {layer}: {error.strerror}") from None


def _own_mounts() -> bool:
    """Leave the mounts of this machine for a copy of them; returns whether this process has the rights of root."""
    user, group = os.geteuid(), os.getegid()
    try:
        try:
            system_call("unshare", _CLONE_NEWNS)
        except PermissionError:
            system_call("unshare", _CLONE_NEWUSER | _CLONE_NEWNS)
            for name, text in (
                ("setgroups", "deny"),
                ("uid_map", f"{user} {user} 1"),
                ("gid_map", f"{group} {group} 1"),
            ):
                Path(f"/proc/self/{name}").write_text(text, encoding="ascii")
        _mount(None, Path("/"), None, _MS_REC | _MS_PRIVATE)
        first, users = Path("/proc/self/uid_map").read_text(encoding="ascii").split()[1:3]
    except OSError as error:
        raise OverlayError(f"the kernel lets this user mount nothing ({error.strerror})") from None
    return (first, users) == ("0", "4294967295")  # in a user namespace, of ours or around us, also root has fewer


def _mounts() -> list[Mount]:
    """Return all mounts, outer ones first. The kernel writes blanks in their names as octal numbers."""
    text = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    found = {}
    for line in text.split("\n")[:-1]:
        left, _, right = line.partition(" - ")
        point = _ESCAPED.sub(lambda code: chr(int(code[1], 8)), left.split(" ")[4])
        found[Path(point)] = right.split(" ")[0]  # of two at one place the later one is seen
    return [Mount(point, found[point]) for point in sorted(found)]


def _open(folder: Path) -> int:
    try:
        return os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise OverlayError(f"{folder} cannot be opened: {error.strerror}") from None


def _hide(layer: Path) -> None:
    """Show an empty folder where the layer lies below its original: reading it there fails (ELOOP)."""
    _mount("tmpfs", layer, "tmpfs", 0, "mode=0755,size=1m")


def _reason(error: OSError, original: Path, layer: Path, *, as_root: bool) -> str:
    kind = _file_system(layer)
    if error.errno == errno.ENODEV:
        return "this kernel has no overlayfs"
    if kind == "overlay":
        return (
            f"{layer} lies on an overlay itself, as in a container, where the kernel takes no layer: use another disk"
        )
    below = [mount.point for mount in _mounts() if mount.point != original and mount.point.is_relative_to(original)]
    if below and not as_root:
        return f"{below[0]} is mounted below {original}, which takes root"
    return f"the kernel puts no layer on {kind} over {original} ({error.strerror})"


def _file_system(place: Path) -> str:
    holding = [mount for mount in _mounts() if place.is_relative_to(mount.point)]
    return holding[-1].kind if holding else "an unknown file system"


def _mount(source: str | None, target: Path, kind: str | None, flags: int, options: str = "") -> None:
    words = [None if word is None else os.fsencode(word) for word in (source, target, kind)]
    system_call("mount", *words, ctypes.c_ulong(flags), os.fsencode(options) or None)


def system_call(name: str, *arguments: object) -> None:
    """Call a function of the C library that returns 0. Raises OSError with the name of the function and the reason."""
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


def copy_folder(source: str | Path, target: str | Path) -> list[Path]:
    """Copy a folder, where no layer can be put over it; returns what became a link, and can still be overwritten.

    Links are made of large files and folders, and of those that cannot be read. Left out are hidden folders at the
    top, run folders, virtual environments, and outputs (`LEFT_OUT`). Raises OSError where the copy cannot be made.
    """
    copy = _Copy(Path(source).resolve(), Path(target).resolve())
    copy.make()
    return copy.links


class _Copy:
    """A copy of a folder that is being made."""

    def __init__(self, source: Path, target: Path) -> None:
        self.source, self.target = source, target
        self.links: list[Path] = []
        self._entries = self._bytes = 0
        self._seen: set[Path] = set()

    def make(self) -> None:
        self.target.mkdir(parents=True)
        waiting = deque([(self.source, self.target)])
        while waiting:
            place, copy = waiting.popleft()
            for entry in sorted(os.scandir(place), key=lambda each: each.name):
                self._entries += 1
                if self._left_out(entry, top=place == self.source):
                    continue
                made = copy / entry.name
                if entry.is_symlink() and self._stays_inside(Path(entry.path)):
                    made.symlink_to(self.target / Path(entry.path).resolve().relative_to(self.source))
                elif entry.is_dir() and self._is_small(Path(entry.path)):
                    made.mkdir()
                    waiting.append((Path(entry.path), made))
                elif entry.is_file() and self._takes(entry):
                    shutil.copy2(entry.path, made)
                else:
                    made.symlink_to(entry.path)
                    self.links.append(made)

    def _left_out(self, entry: "os.DirEntry[str]", *, top: bool) -> bool:
        if entry.name in LEFT_OUT or Path(entry.path) == self.target:
            return True
        if not entry.is_dir(follow_symlinks=False):
            return False
        hidden = top and entry.name.startswith(".")
        return hidden or any(Path(entry.path, name).exists() for name in ("study.json", "pyvenv.cfg"))

    def _stays_inside(self, link: Path) -> bool:
        return link.exists() and link.resolve().is_relative_to(self.source)

    def _is_small(self, folder: Path) -> bool:
        real = folder.resolve()
        if real in self._seen or self.source.is_relative_to(real):
            return False  # links that lead in a circle
        self._seen.add(real)
        try:
            with os.scandir(folder) as entries:
                count = sum(1 for _ in entries)
        except OSError:
            return False
        return count <= MAX_IN_A_FOLDER and self._entries + count <= MAX_ENTRIES

    def _takes(self, entry: "os.DirEntry[str]") -> bool:
        size = entry.stat().st_size
        if size > MAX_FILE_BYTES or self._bytes + size > MAX_BYTES or not os.access(entry.path, os.R_OK):
            return False
        self._bytes += size
        return True


def _try(folder: Path, layer: Path, name: str) -> str | None:
    """Put the layer over the folder and write there; for a process that ends afterwards."""
    try:
        mount_overlays([(str(folder), str(layer))])
        (folder / name).touch()
    except OverlayError as error:
        return str(error)
    except OSError as error:
        return f"nothing can be written in {folder} with a layer over it ({error.strerror})"
    return None


if __name__ == "__main__":
    refusal = _try(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
    if refusal is not None:
        sys.stdout.write(f"{refusal}\n")
        raise SystemExit(1)
