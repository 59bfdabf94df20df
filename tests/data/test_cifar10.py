import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch

from worldsize.config import TrainingSettings
from worldsize.data import DataSet, ImageArrays, cifar10, cifar10_download, load_data, training_batches
from worldsize.data.cifar10_download import FOLDER, RECEIPT
from worldsize.errors import DataError

RECORDS = 3
FILES = cifar10.TRAIN_FILES + cifar10.TEST_FILES


def small_files() -> dict[str, bytes]:
    """Files in the official layout with a few records each: label, then planes of red, green, blue."""
    random = np.random.default_rng(0)
    files = {}
    for name in FILES:
        records = random.integers(0, 256, (RECORDS, 3073), dtype=np.uint8)
        records[:, 0] = random.integers(0, 10, RECORDS)
        files[name] = records.tobytes()
    return files


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A user's cache folder that is empty, no folder in the environment, and no way to the real server."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("WORLDSIZE_DATA", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(cifar10_download, "ARCHIVE_URL", "http://127.0.0.1:9/archive.tar.gz")


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that holds a small set in the official layout."""
    monkeypatch.setattr(cifar10, "RECORDS_PER_FILE", RECORDS)
    folder = tmp_path / "data" / FOLDER
    folder.mkdir(parents=True)
    for name, content in small_files().items():
        (folder / name).write_bytes(content)
    return tmp_path / "data"


def load(folder: Path | None = None) -> DataSet:
    return load_data(TrainingSettings(data="cifar10", data_dir=folder))


def test_planes_become_pixels_and_files_follow_each_other(small: Path) -> None:
    data = load(small)
    assert isinstance(data.train, ImageArrays)
    assert isinstance(data.test, ImageArrays)
    files = small_files()
    assert data.train.images.shape == (5 * RECORDS, 32, 32, 3)
    record = files["data_batch_4.bin"][2 * 3073 : 3 * 3073]
    sample = 3 * RECORDS + 2
    assert data.train.labels[sample] == record[0]
    red_at_row_5_column_7, blue_there = record[1 + 5 * 32 + 7], record[1 + 2 * 1024 + 5 * 32 + 7]
    assert data.train.images[sample, 5, 7, 0] == red_at_row_5_column_7
    assert data.train.images[sample, 5, 7, 2] == blue_there
    assert data.test.labels.tolist() == list(files["test_batch.bin"][::3073])
    assert (data.train.transform.padding, data.train.transform.flip) == (4, True)


@pytest.mark.parametrize("given", ["parent", "folder itself", "environment", "cache"])
def test_the_files_are_found_where_they_may_be(
    given: str, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder: Path | None = {"parent": small, "folder itself": small / FOLDER}.get(given)
    if given == "environment":
        monkeypatch.setenv("WORLDSIZE_DATA", str(small))
    if given == "cache":
        (tmp_path / "cache" / "worldsize").parent.mkdir()
        small.rename(tmp_path / "cache" / "worldsize")
    data = load(folder)
    assert data.location is not None
    assert Path(data.location).name == FOLDER
    assert len(data.train) == 5 * RECORDS


def test_files_of_unknown_origin_are_used_with_a_warning(small: Path) -> None:
    data = load(small)
    assert data.record().verification == "unverified"
    [warning] = data.warnings
    assert warning.code == "unverified-data"
    assert str(small / FOLDER) in warning.message


def test_a_truncated_file_is_named_with_both_sizes(small: Path) -> None:
    path = small / FOLDER / "data_batch_3.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"data_batch_3\.bin has 9,218 bytes; 9,219 are expected"):
        load(small)


def test_a_wrong_label_is_named_with_its_record(small: Path) -> None:
    path = small / FOLDER / "test_batch.bin"
    content = bytearray(path.read_bytes())
    content[3073] = 10
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"test_batch\.bin is corrupt: record 1 has the label 10; 0 to 9 are allowed"):
        load(small)


def test_a_missing_file_is_named(small: Path) -> None:
    (small / FOLDER / "data_batch_2.bin").unlink()
    with pytest.raises(DataError, match=r"data_batch_2\.bin is missing"):
        load(small)


def test_a_folder_without_the_data_is_not_filled_from_the_network(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"cifar10 is not in {tmp_path}\nGive the folder cifar-10-batches-bin"):
        load(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("inside", ["", "cifar-10-batches-py"])
def test_the_python_version_is_recognised_and_never_loaded(tmp_path: Path, inside: str) -> None:
    folder = tmp_path / inside
    folder.mkdir(exist_ok=True)
    (folder / "data_batch_1").write_bytes(b"\x80\x02.")
    with pytest.raises(DataError, match="pickles, which worldsize never loads"):
        load(tmp_path)


def test_without_network_it_says_what_to_put_where(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="could not be downloaded") as caught:
        load()
    message = str(caught.value)
    assert "--data-dir" in message
    assert str(tmp_path / "cache" / "worldsize") in message
    assert len(message.splitlines()) == 2
    assert not (tmp_path / "cache" / "worldsize").exists()


class Server:
    """An HTTP server on loopback that has one archive."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.content = self.archive({f"{FOLDER}/{name}": content for name, content in small_files().items()})
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(server.content)))
                self.end_headers()
                self.wfile.write(server.content)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.monkeypatch = monkeypatch
        monkeypatch.setattr(cifar10_download, "ARCHIVE_URL", f"http://127.0.0.1:{self.http.server_port}/archive.tar.gz")
        self.publish_hash()

    @staticmethod
    def archive(files: dict[str, bytes]) -> bytes:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as tar:
            for name, content in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
        return packed.getvalue()

    def publish_hash(self) -> None:
        self.monkeypatch.setattr(cifar10_download, "ARCHIVE_MD5", hashlib.md5(self.content).hexdigest())


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(cifar10, "RECORDS_PER_FILE", RECORDS)
    server = Server(monkeypatch)
    thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.http.shutdown()
    thread.join()
    server.http.server_close()


def test_a_download_is_verified_and_official_from_then_on(server: Server, tmp_path: Path) -> None:
    data = load()
    assert data.verification == "official"
    assert data.warnings == []
    cache = tmp_path / "cache" / "worldsize"
    assert [path.name for path in cache.iterdir()] == [FOLDER]
    assert {path.name for path in (cache / FOLDER).iterdir()} == {*FILES, RECEIPT}
    server.content = b""  # from now on it must come from the cache
    assert load().verification == "official"


def test_files_that_changed_after_the_download_are_unverified(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "worldsize" / FOLDER
    load()
    path = folder / "data_batch_5.bin"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    data = load()
    assert data.verification == "unverified"
    assert "data_batch_5.bin" in data.warnings[0].message


@pytest.mark.parametrize("receipt", ["", "[]", "{}", '{"archive_md5": "other", "files": {}}'])
def test_a_receipt_that_is_not_ours_verifies_nothing(small: Path, receipt: str) -> None:
    (small / FOLDER / RECEIPT).write_text(receipt)
    assert load(small).verification == "unverified"


def test_an_archive_with_another_hash_is_refused(server: Server, tmp_path: Path) -> None:
    server.content += b"tail"
    with pytest.raises(DataError, match="could not be downloaded"):
        load()
    assert not (tmp_path / "cache" / "worldsize").exists()


def test_nothing_in_an_archive_reaches_outside_its_folder(server: Server, tmp_path: Path) -> None:
    outside = {f"{FOLDER}/../../escaped.bin": b"x", "/escaped.bin": b"x", f"{FOLDER}/deep/escaped.bin": b"x"}
    server.content = server.archive({f"{FOLDER}/{name}": data for name, data in small_files().items()} | outside)
    server.publish_hash()
    load()
    assert list(tmp_path.rglob("escaped.bin")) == []


def test_an_archive_without_the_files_is_refused(server: Server, tmp_path: Path) -> None:
    server.content = b"this is no archive"
    server.publish_hash()
    with pytest.raises(DataError, match="could not be downloaded"):
        load()
    assert not (tmp_path / "cache" / "worldsize").exists()


@pytest.fixture(scope="module")
def real(cifar10_dir: Path) -> DataSet:
    return load(cifar10_dir)


def test_the_real_images(real: DataSet) -> None:
    record = real.record()
    assert (record.train_samples, record.test_samples, record.shape, record.classes) == (
        50_000,
        10_000,
        (3, 32, 32),
        10,
    )
    assert record.verification == "unverified", "re-encoded images are not the official ones"
    assert isinstance(real.train, ImageArrays)
    assert real.train.labels.bincount().tolist() == [5000] * 10
    pixels = real.train.images[::50].to(torch.float32) / 255
    mean = pixels.mean((0, 1, 2))
    torch.testing.assert_close(mean, torch.tensor(cifar10.TRANSFORM.mean), atol=0.02, rtol=0)


def test_an_epoch_of_the_real_images_is_the_same_at_any_world_size(real: DataSet) -> None:
    def first_batch(world: int) -> tuple[torch.Tensor, torch.Tensor]:
        local = 128 // world
        shares = [slice(rank * local, (rank + 1) * local) for rank in range(world)]
        ranks = [
            training_batches(real, loader="batched", loader_workers=0, seed=0, global_batch=128, share=share)
            for share in shares
        ]
        assert ranks[0].steps_per_epoch == 390
        inputs, labels = zip(*(next(rank.epoch(0)) for rank in ranks), strict=True)
        return torch.cat(inputs), torch.cat(labels)

    inputs, labels = first_batch(1)
    for world in (2, 4):
        others = first_batch(world)
        torch.testing.assert_close(others[0], inputs, rtol=0, atol=1e-6)
        assert torch.equal(others[1], labels)
    assert abs(inputs.mean()) < 0.5
    assert 0.7 < inputs.std() < 1.5
