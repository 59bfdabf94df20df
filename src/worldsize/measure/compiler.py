"""What torch.compile needs beside torch: a C++ compiler."""

import os
import shutil
import sys

from worldsize.errors import UsageError


def cpp_compiler_name() -> str:
    """The one that torch calls: CXX, else the usual one of this system (torch/_inductor/config.py)."""
    return os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")


def find_cpp_compiler() -> str | None:
    """Its path; None where there is none."""
    return shutil.which(cpp_compiler_name())


def check_cpp_compiler() -> None:
    """Raise UsageError where nothing could be compiled."""
    if find_cpp_compiler() is None:
        raise UsageError(
            f"--compile was given, and torch.compile needs a C++ compiler: {cpp_compiler_name()} was not found\n"
            "Install one (apt-get install g++), name another in CXX, or leave --compile out."
        )
