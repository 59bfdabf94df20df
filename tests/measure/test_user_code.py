"""Which files of the user's are behind a model, data or a strategy: known files, in fresh interpreters."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from worldsize.results.provenance import Repository, UserCode, UserFile, different_files, named, short_commit

ASK = """
import json, sys
from worldsize.factories import resolve
from worldsize.measure.user_code import user_code
for reference in sys.argv[1:]:
    if ":" in reference and not reference.startswith("digits"):
        resolve(reference, "model")
found = user_code(sys.argv[1:])
print(json.dumps(found and found.model_dump()))
"""
GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")


def seen(folder: Path, *references: str, **variables: str) -> Any:
    return said(folder, "-c", ASK, *references, **variables)


def said(folder: Path, *arguments: str, **variables: str) -> Any:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def names(folder: Path, *references: str, **variables: str) -> list[str]:
    found = seen(folder, *references, **variables)
    return [file["name"] for file in found["files"]]


def files(folder: Path, **contents: str) -> None:
    for name, content in contents.items():
        path = folder / (name.replace("__init__", "INIT").replace("__", "/").replace("INIT", "__init__") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def test_a_single_file_and_its_digest(tmp_path: Path) -> None:
    files(tmp_path, net="import json\ndef make(): pass\n", unused="")
    [file] = seen(tmp_path, "net.py:make")["files"]
    assert file == {
        "name": "net.py",
        "path": str(tmp_path / "net.py"),
        "sha256": hashlib.sha256((tmp_path / "net.py").read_bytes()).hexdigest(),
    }


def test_what_it_imports_from_beside_it_also_where_nobody_has_called_it(tmp_path: Path) -> None:
    files(
        tmp_path,
        net="import blocks\nfrom more.deep import thing\ndef make():\n    import late\n    from later import x\n",
        blocks="import torch\n",
        late="import latest",
        latest="",
        later="x = 1",
        more____init__="",
        more__deep="thing = 1\nfrom . import side\n",
        more__side="",
        unused="",
    )
    wanted = [
        "blocks.py",
        "late.py",
        "later.py",
        "latest.py",
        "more/__init__.py",
        "more/deep.py",
        "more/side.py",
        "net.py",
    ]
    assert names(tmp_path, "net.py:make") == wanted


def test_packages_and_several_references(tmp_path: Path) -> None:
    files(
        tmp_path,
        lab____init__="from lab.models import net",
        lab__models="from .inner import layers\nnet = layers.net",
        lab__inner____init__="",
        lab__inner__layers="def net(): pass",
        lab__other="",
        mine="import shared\nclass Mine: pass\n",
        shared="",
    )
    wanted = ["lab/__init__.py", "lab/inner/__init__.py", "lab/inner/layers.py", "lab/models.py"]
    assert names(tmp_path, "lab.models:net") == wanted
    assert names(tmp_path, "lab.models:net", "digits", "mine.py:Mine") == [*wanted, "mine.py", "shared.py"]


def test_from_elsewhere_on_the_path_but_nothing_that_is_installed(tmp_path: Path) -> None:
    """PYTHONPATH is the user's; Python, torch and worldsize are not, and an installed package only if it is named."""
    files(tmp_path / "common", common="")
    files(tmp_path / "env" / "site-packages", installed____init__="import helper", installed__a="x = 1", helper="")
    code = "import common, installed, psutil, worldsize.errors, wsgiref\ndef make(): pass\n"
    files(tmp_path, net=code)
    path = os.pathsep.join((str(tmp_path / "common"), str(tmp_path / "env/site-packages"), os.environ["PYTHONPATH"]))
    assert names(tmp_path, "net.py:make", PYTHONPATH=path) == ["common.py", "net.py"]
    assert names(tmp_path, "installed.a:x", PYTHONPATH=path) == ["installed/__init__.py", "installed/a.py"]


def test_nothing_where_there_is_no_code_of_the_users(tmp_path: Path) -> None:
    assert seen(tmp_path, "resnet18", "digits", "digits:1") is None


@pytest.fixture
def work_tree(tmp_path: Path) -> Path:
    files(tmp_path, net="import part\ndef make(): pass\n", part="", other="")
    for line in ("init -q", "add .", "commit -qm first"):
        subprocess.run([*GIT, *line.split()], cwd=tmp_path, check=True)
    return tmp_path


def commit_of(folder: Path) -> str:
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_the_commit_and_whether_it_is_dirty(work_tree: Path) -> None:
    found = seen(work_tree, "net.py:make")
    assert found["repositories"] == [{"folder": str(work_tree), "commit": commit_of(work_tree)}]
    (work_tree / "runs").mkdir()
    (work_tree / "runs" / "study.json").write_text("{}")
    assert seen(work_tree, "net.py:make")["repositories"] == found["repositories"], "a run folder is no change"
    (work_tree / "part.py").write_text("x = 1\n")
    assert seen(work_tree, "net.py:make")["repositories"][0]["commit"] == commit_of(work_tree) + "+dirty"


def test_a_file_that_is_not_tracked_makes_it_dirty(work_tree: Path) -> None:
    files(work_tree, net="import new\ndef make(): pass\n", new="")
    subprocess.run([*GIT, "commit", "-qam", "second"], cwd=work_tree, check=True)
    [repository] = seen(work_tree, "net.py:make")["repositories"]
    assert repository["commit"] == commit_of(work_tree) + "+dirty"


def test_what_only_lies_in_a_work_tree_has_no_commit(work_tree: Path) -> None:
    files(work_tree / "scratch", mine="def make(): pass\n")
    assert seen(work_tree, "scratch/mine.py:make")["repositories"] == []


def code(*pairs: tuple[str, str]) -> UserCode:
    return UserCode(files=[UserFile(name=name, path=f"/{name}", sha256=digest) for name, digest in pairs])


def test_other_files_are_named() -> None:
    old = code(("a.py", "1"), ("b.py", "2"), ("c.py", "3"))
    assert different_files(old, code(("c.py", "3"), ("b.py", "2"), ("a.py", "1"))) == []
    assert different_files(old, code(("a.py", "1"), ("b.py", "4"), ("d.py", "3"))) == ["b.py", "c.py", "d.py"]
    assert different_files(old, None) == []
    assert different_files(code(("a.py", "1"), ("a.py", "2")), code(("a.py", "2"), ("a.py", "1"))) == []
    assert different_files(code(("a.py", "1"), ("a.py", "2")), code(("a.py", "2"))) == ["a.py"]
    assert named(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"


def test_commits_are_shortened_and_stay_dirty() -> None:
    found = UserCode(
        repositories=[Repository(folder="/a", commit="0" * 40 + "+dirty"), Repository(folder="/b", commit="1" * 40)]
    )
    assert found.commit is not None
    assert short_commit(found.commit) == "0" * 12 + "+dirty, " + "1" * 12
    assert UserCode().commit is None


def names_of_scripts(folder: Path, scripts: dict[str, str], **variables: str) -> list[str]:
    """What a look finds behind scripts, each with the folder that its imports are found from."""
    code = (
        "import json, sys\nfrom pathlib import Path\nfrom worldsize.measure.user_code import scripts_code\n"
        "found = scripts_code({Path(file): Path(root) for file, root in json.loads(sys.argv[1]).items()})\n"
        "print(json.dumps([file.name for file in found.files]))\n"
    )
    return [str(name) for name in said(folder, "-c", code, json.dumps(scripts), **variables)]


def on_path(*folders: Path) -> str:
    return os.pathsep.join((*map(str, folders), os.environ["PYTHONPATH"]))


LATE = "def make():\n    import {}\n"
"""A factory whose import has not run yet: it is found in the text alone."""


def test_a_module_goes_before_a_folder_of_its_name_and_a_package_before_a_module(tmp_path: Path) -> None:
    files(tmp_path, net=LATE.format("data, other.part"), data="", other="", other____init__="", other__part="")
    files(tmp_path, data__images="")
    assert names(tmp_path, "net.py:make") == ["data.py", "net.py", "other/__init__.py", "other/part.py"]


def test_a_relative_import_that_leads_above_the_root_is_no_error(tmp_path: Path) -> None:
    """Python refuses it as well, and goes on with the other one."""
    code = "def make():\n    try:\n        from ..layers import B\n    except ImportError:\n        import layers\n"
    files(tmp_path, models__net=code, layers="B = 1")
    assert names(tmp_path, "models/net.py:make") == ["layers.py", "net.py"]


def test_a_script_and_its_helpers_from_elsewhere(tmp_path: Path) -> None:
    files(tmp_path / "lib", helper="from helping import more\n", helping____init__="", helping__more="import numpy")
    files(tmp_path / "env" / "site-packages", installed="import helper")
    files(tmp_path / "work" / "train", run="import helper, installed, beside, worldsize, numpy, json\n", beside="")
    files(tmp_path / "work", beside="x = 1")
    path = on_path(tmp_path / "lib", tmp_path / "env" / "site-packages")
    found = names_of_scripts(tmp_path / "work", {"train/run.py": "train"}, PYTHONPATH=path)
    assert found == ["beside.py", "helper.py", "helping/__init__.py", "helping/more.py", "run.py"]


def test_a_module_of_a_package_that_lies_elsewhere_runs_as_a_script(tmp_path: Path) -> None:
    files(tmp_path / "lib", pkg____init__="", pkg__train="from pkg.model import Net\n", pkg__model="Net = 1")
    (tmp_path / "work").mkdir()
    script = str(tmp_path / "lib" / "pkg" / "train.py")
    found = names_of_scripts(tmp_path / "work", {script: "."}, PYTHONPATH=on_path(tmp_path / "lib"))
    assert found == ["pkg/__init__.py", "pkg/model.py", "pkg/train.py"]


RUNNING = """
import importlib, json, sys
from pathlib import Path
import helper
from pkg.model import Net
from worldsize.measure.user_code import running_code
importlib.import_module("chosen")
def later():
    from .late import x
print(json.dumps([file.name for file in running_code(Path(sys.argv[0])).files]))
"""


def test_a_program_that_runs_within_its_package(tmp_path: Path) -> None:
    """As a meter sees it: what it has imported by now, from wherever, and what its text says beside it."""
    files(tmp_path / "lib", helper="", unused="")
    files(tmp_path, pkg____init__="", pkg__train=RUNNING, pkg__model="Net = 1", pkg__late="x = 1", chosen="", other="")
    found = said(tmp_path, "-m", "pkg.train", PYTHONPATH=on_path(tmp_path / "lib"))
    package = [f"pkg/{name}.py" for name in ("__init__", "late", "model", "train")]
    assert found == ["chosen.py", "helper.py", *package]


def test_a_state_of_the_repository_that_git_does_not_tell_is_not_clean(work_tree: Path, tmp_path: Path) -> None:
    """As where `git status` takes too long in a large repository."""
    tools = tmp_path / "tools"
    tools.mkdir()
    real = shutil.which("git")
    (tools / "git").write_text(f'#!/bin/sh\ncase "$*" in *" status "*) exit 1;; esac\nexec {real} "$@"\n')
    (tools / "git").chmod(0o755)
    [repository] = seen(work_tree, "net.py:make", PATH=f"{tools}:{os.environ['PATH']}")["repositories"]
    assert repository["commit"] == commit_of(work_tree) + "+dirty"
