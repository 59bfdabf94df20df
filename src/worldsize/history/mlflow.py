"""MLflow: a run per cell in RUN/mlruns/mlflow.db, or wherever MLFLOW_TRACKING_URI says."""

import logging
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import batched_
from pathlib import Path
from typing import Any

from worldsize.history.client import Number, Row, Series, variables
