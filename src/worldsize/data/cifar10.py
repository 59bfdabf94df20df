"""`cifar10` from its binary version: found, or downloaded with a checked hash, and read. No pickle is ever loaded.

A record is one label byte and 3,072 pixel bytes (planes of red, green, blue, each 32×32), 10,000 records a file.
Source of the data and its layout: https://www.cs.toronto.edu/~kriz/cifar.html (Krizhevsky 2009).
"""

import hashlib
import math
import os
from pathlib import Path

import numpy as np
import pooch
import torch
from numpy.typing import NDArray

from worldsize.config import TrainingSettings
from worldsize.data.cifar10_download import ARCHIVE_URL, FOLDER, PYTHON_FOLDER, download, read_receipt
from worldsize.data.sets import DataSet, ImageArrays, Transform, blank
from worldsize.errors import DataError
from worldsize.results.records import WarningRecord

TRAIN_FILES = tuple(f"data_batch_{part}.bin" for part in range(1, 6))
TEST_FILES = ("test_batch.bin",)
RECORDS_PER_FILE = 10_000
SHAPE, CLASSES = (3, 32, 32), 10
RECORD_BYTES = 1 + math.prod(SHAPE)

TRANSFORM = Transform(padding=4, flip=True, mean=(0.4914, 0.4822, 0.4465), std=(0.2023, 0.1994, 0.2010))
"""The constants that the field uses for this data set."""


def load_cifar10(settings: TrainingSettings) -> DataSet:
    """CIFAR-10 from --data-dir, else $WORLDSIZE_DATA, else the user's cache folder, else downloaded.

    What worldsize unpacked itself from the official archive, and has not changed since, is `official`; all else
    is `unverified` and carries a warning. Raises DataError for data that are missing, truncated or corrupt.
    """
    folder = find_folder(settings.data_dir)
    receipt = read_receipt(folder)
    changed: list[str] = []
    train = _read_split(folder, TRAIN_FILES, TRANSFORM, receipt, changed)
    test = _read_split(folder, TEST_FILES, TRANSFORM.without_augmentation(), receipt, changed)
    warning = _warning(folder, receipt, changed)
    return DataSet(
        name="cifar10",
        train=train,
        test=test,
        shape=train.shape,
        classes=CLASSES,
        verification="unverified" if warning else "official",
        location=str(folder),
        warnings=[warning] if warning else [],
    )


def find_folder(data_dir: Path | None) -> Path:
    """The folder with the binary files; it, or its parent, may be given. Downloads only if none was given."""
    cache = Path(pooch.os_cache("worldsize"))
    if data_dir is not None:
        places = [data_dir]
    else:
        places = [Path(given) for given in [os.environ.get("WORLDSIZE_DATA")] if given] + [cache]
    for place in places:
        for folder in (place, place / FOLDER):
            if any((folder / name).is_file() for name in TRAIN_FILES + TEST_FILES):
                return folder.absolute()
    if data_dir is None:
        return download(cache, places)
    pickles = any((folder / name).exists() for folder in places for name in ("data_batch_1", PYTHON_FOLDER))
    raise DataError(
        f"cifar10 is not in {data_dir}"
        + (
            ", which holds the Python version: it consists of pickles, which worldsize never loads\n"
            if pickles
            else "\n"
        )
        + f"Give the folder {FOLDER}, or the one that holds it, from {ARCHIVE_URL}"
    )


def _read_split(
    folder: Path, names: tuple[str, ...], transform: Transform, receipt: dict[str, str] | None, changed: list[str]
) -> ImageArrays:
    """The images of some files; names of files that are not as the receipt says are added to `changed`."""
    samples = len(names) * RECORDS_PER_FILE
    labels = np.empty(samples, np.int64)
    split = ImageArrays(blank(samples, SHAPE, transform.padding), torch.from_numpy(labels), transform)
    images = split.images.numpy()
    for part, name in enumerate(names):
        content = _read_file(folder / name)
        if receipt is not None and hashlib.sha256(content).hexdigest() != receipt.get(name):
            changed.append(name)
        records = np.frombuffer(content, np.uint8).reshape(RECORDS_PER_FILE, RECORD_BYTES)
        _check_labels(folder / name, records[:, 0])
        rows = slice(part * RECORDS_PER_FILE, (part + 1) * RECORDS_PER_FILE)
        labels[rows] = records[:, 0]
        planes = records[:, 1:].reshape(-1, *SHAPE)
        for channel in range(SHAPE[0]):  # one by one: four times as fast as one transposed copy
            images[rows, :, :, channel] = planes[:, channel]
    return split


def _read_file(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"{path} is missing\nUnpack {ARCHIVE_URL} there again.") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    expected = RECORDS_PER_FILE * RECORD_BYTES
    if len(content) != expected:
        raise DataError(
            f"{path} has {len(content):,} bytes; {expected:,} are expected "
            f"({RECORDS_PER_FILE:,} records of {RECORD_BYTES:,})\nUnpack {ARCHIVE_URL} there again."
        )
    return content


def _check_labels(path: Path, labels: NDArray[np.uint8]) -> None:
    wrong = np.flatnonzero(labels >= CLASSES)
    if len(wrong):
        raise DataError(
            f"{path} is corrupt: record {wrong[0]} has the label {labels[wrong[0]]}; 0 to {CLASSES - 1} are allowed\n"
            f"Unpack {ARCHIVE_URL} there again."
        )


def _warning(folder: Path, receipt: dict[str, str] | None, changed: list[str]) -> WarningRecord | None:
    """None if all files are what worldsize unpacked from the official archive."""
    if receipt is None:
        reason = "not unpacked by worldsize from the official archive, the only file with a published hash"
    elif changed:
        reason = f"changed since worldsize unpacked them from the official archive: {', '.join(changed)}"
    else:
        return None
    return WarningRecord(
        code="unverified-data",
        message=f"the files in {folder} are not verified ({reason}); accuracies may differ from official ones",
    )
