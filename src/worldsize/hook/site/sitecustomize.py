"""Found by Python itself at its start, by PYTHONPATH: begins the hook where a study wants one (commands/).

It first runs the `sitecustomize` that it hides. Nothing that goes wrong here is seen by the program.
"""

import importlib
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _hidden() -> None:
    """Run the sitecustomize that the program would have without us."""
    ours = sys.modules.pop("sitecustomize")
    try:
        importlib.import_module("sitecustomize")  # that of the person's environment
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", ours)  # Python looks for what it has imported


def _begin() -> None:
    """Load the package beside this folder, under a name of its own, and let it wait for torch."""
    folder = os.path.dirname(_HERE)
    place = os.path.join(folder, "__init__.py")
    spec = importlib.util.spec_from_file_location("_worldsize_hook", place, submodule_search_locations=[folder])
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["_worldsize_hook"] = module
    spec.loader.exec_module(module)
    importlib.import_module("_worldsize_hook.waiting").wait_for_torch()


sys.path[:] = [place for place in sys.path if os.path.abspath(place) != _HERE]
try:
    if os.environ.get("WORLDSIZE_HOOK"):
        _begin()
except Exception:  # the program must run as if we were not there
    pass
_hidden()
