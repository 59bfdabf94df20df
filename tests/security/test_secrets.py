"""Keys, passwords and the environment stay out of everything that a run keeps or prints."""

import pytest

from security.conftest import ADDRESSES, CANARY, SECRETS, Watched
from worldsize.config import StudySettings, validated
from worldsize.config.redact import names_a_secret, safe_command, without_credentials
from worldsize.errors import UsageError
from worldsize.measure.machine import provenance
from worldsize.results.folder import load_run
from worldsize.results.records import ErrorRecord, WarningRecord


def test_no_file_of_a_run_holds_a_secret(study: Watched) -> None:
    files = [path for path in study.run.rglob("*") if path.is_file()]
    names = {path.name for path in files}
    assert {"study.json", "cell.json", "job.json", "agent.log", "rank0.jsonl", "index.html", "mlflow.db"} <= names
    assert any(name.endswith(".wandb") for name in names)
    assert any("tfevents" in name for name in names)
    assert [str(path) for path in files if CANARY.encode() in path.read_bytes()] == []
    assert [str(path) for path in study.run.rglob("*") if CANARY in path.name] == []


def test_no_output_holds_a_secret(study: Watched) -> None:
    assert len(study.out) > 1000
    assert CANARY not in study.out + study.err


def test_what_is_recorded_of_the_environment_is_on_the_list(study: Watched) -> None:
    found = load_run(study.run).study.provenance.environment
    prefixes = ("OMP_", "GOMP_", "KMP_", "MKL_", "MALLOC_", "GLOO_", "NCCL_", "TORCH_")
    single = ("LD_PRELOAD", "THP_MEM_ALLOC_ENABLE", "GLIBC_TUNABLES", "CUDA_VISIBLE_DEVICES")
    assert [name for name in found if not name.startswith(prefixes) and name not in single] == []
    assert not SECRETS.keys() & found.keys()
    assert found["MKL_SERVER"] == "http://***@127.0.0.1:9/x?token=***"
    assert ADDRESSES.keys() & found.keys() == {"MKL_SERVER"}


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("https://user:pw@host/x", "https://***@host/x"),
        ("https:/user:pw@host/x", "https:/***@host/x"),
        ("postgresql+psycopg://u:p@ss@db:5432/x and ssh://git@h", "postgresql+psycopg://***@db:5432/x and ssh://***@h"),
        ("s3://bucket/a?X-Amz-Signature=abc&b=1", "s3://bucket/a?X-Amz-Signature=***&b=1"),
        ("sqlite:////tmp/a@b.db", "sqlite:////tmp/a@b.db"),
        ("http://host:80/a@b", "http://host:80/a@b"),
        ("ddp@4 mine.py:net", "ddp@4 mine.py:net"),
    ],
)
def test_credentials_in_addresses_are_hidden(given: str, kept: str) -> None:
    assert without_credentials(given) == kept
    assert WarningRecord(code="history-log", message=given).message == kept
    assert ErrorRecord(kind="E", message=given, traceback=given).traceback == kept


def test_a_command_line_is_kept_without_credentials() -> None:
    line = ("worldsize", "--data-dir", "https://user:pw@host", "--api-key", "abc", "--token=abc", "--steps", "3")
    kept = ("worldsize", "--data-dir", "https://***@host", "--api-key", "***", "--token=***", "--steps", "3")
    assert safe_command(line) == kept
    assert provenance(line).command == kept


@pytest.mark.parametrize("name", ["WANDB_API_KEY", "password", "X_AUTH", "MY_TOKENS", "NCCL_SECRET", "credentials"])
def test_names_of_secrets(name: str) -> None:
    assert names_a_secret(name)


@pytest.mark.parametrize("name", ["NCCL_IB_PKEY", "OMP_NUM_THREADS", "TORCH_KEYBOARD", "--monkey", "MKL_AUTHOR"])
def test_other_names(name: str) -> None:
    assert not names_a_secret(name)


def test_an_address_is_no_folder_of_data() -> None:
    with pytest.raises(UsageError, match="a folder is needed; nothing is read from an address"):
        validated(StudySettings, {"data_dir": "https://user:pw@host/data"})
