"""Fetching the official CIFAR-10 archive: download, check its published hash, unpack, and leave a receipt.

The receipt holds the SHA-256 of each file as it was unpacked from the verified archive: only the archive has a
published hash, and the receipt carries it over to the files.
"""

import hashlib
import importlib.util
import json
import tarfile
import tempfile
from pathlib import Path

import pooch

from worldsize.errors import DataError

ARCHIVE_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
ARCHIVE_MD5 = "c32a1d4ab5d03f1284b67883e8d87530"
"""As published on the data set's page."""
FOLDER = "cifar-10-batches-bin"
"""The one folder in the archive."""
PYTHON_FOLDER = "cifar-10-batches-py"
RECEIPT = ".worldsize-verified.json"
TIMEOUT_S = 15
"""Silence after which the server is given up."""


def download(cache: Path, searched: list[Path]) -> Path:
    """Download and unpack CIFAR-10 into the cache folder; return the folder of its files.

    Nothing is left behind unless it is complete. Raises DataError, which says what to put where, if the archive
    cannot be fetched, does not have the published hash, or cannot be unpacked.
    """
    target = cache / FOLDER
    is_new = not cache.exists()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".download-", dir=cache) as scratch:
            unpacked = _unpack(_fetch(Path(scratch)), Path(scratch))
            _put_in_place(unpacked, target)
    # requests, pooch, tarfile and the file system each raise their own kinds, and all mean the same to the user.
    except Exception as error:
        if is_new and cache.is_dir() and not any(cache.iterdir()):
            cache.rmdir()
        raise _not_available(error, searched) from error
    return target


def read_receipt(folder: Path) -> dict[str, str] | None:
    """SHA-256 of each file by name, as they were unpacked; None without a (readable) receipt."""
    try:
        receipt = json.loads((folder / RECEIPT).read_text(encoding="utf-8"))
        if receipt["archive_md5"] != ARCHIVE_MD5:
            return None
        return {str(name): str(entry["sha256"]) for name, entry in receipt["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _fetch(folder: Path) -> Path:
    """Download the archive into a folder; pooch raises ValueError if its hash is not the published one."""
    pooch.get_logger().setLevel("WARNING")
    has_progress = importlib.util.find_spec("tqdm") is not None
    downloader = pooch.HTTPDownloader(progressbar=has_progress, timeout=TIMEOUT_S)
    known_hash = f"md5:{ARCHIVE_MD5}"
    return Path(pooch.retrieve(ARCHIVE_URL, known_hash, "archive.tar.gz", folder, downloader=downloader))


def _unpack(archive: Path, folder: Path) -> Path:
    """Unpack the verified archive and write the receipt; return the folder of its files.

    Only plain files of the one folder are taken, and written under their own names: nothing in an archive can
    reach outside. (tarfile's data filter does the same, but is missing in early releases of Python 3.11.)
    """
    unpacked = folder / FOLDER
    unpacked.mkdir()
    files = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            source = tar.extractfile(member) if member.isfile() else None
            name = Path(member.name).name
            if source is None or Path(member.name).parent != Path(FOLDER):
                continue
            content = source.read()
            (unpacked / name).write_bytes(content)
            files[name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    receipt = {"archive": ARCHIVE_URL, "archive_md5": ARCHIVE_MD5, "files": files}
    (unpacked / RECEIPT).write_text(json.dumps(receipt, indent=2) + "\n", encoding="utf-8")
    return unpacked


def _put_in_place(unpacked: Path, target: Path) -> None:
    try:
        unpacked.rename(target)
    except OSError:
        if not (target / RECEIPT).is_file():  # another process may have been faster; then its files are as good
            raise


def _not_available(error: Exception, searched: list[Path]) -> DataError:
    reason = str(error).strip().splitlines()[0] if isinstance(error, ValueError | tarfile.TarError) else ""
    cause = type(error).__name__ + (f": {reason}" if reason else "")
    places = " or ".join(str(place) for place in searched)
    return DataError(
        f"cifar10 is not in {places}, and could not be downloaded ({cause})\n"
        f"Unpack {ARCHIVE_URL} into {searched[0]}, or give its folder {FOLDER} with --data-dir."
    )
