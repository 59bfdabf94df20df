"""Make the picture of the README from a real run: `python benchmarks/picture.py RUN` (needs Debian's chromium).

It is the first screen of the run's report, as a browser shows it.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from worldsize.report.write import write_report

PICTURE = Path(__file__).parent.parent / "docs" / "report.png"
WIDTH, HEIGHT, SCALE = 1280, 1000, 1.5
"""A laptop's window, in CSS pixels, and how many pixels of the picture each of them has."""
SILENT = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars"
)


def main(run: Path) -> None:
    """Write the report and photograph its first screen."""
    names = [os.environ.get("WORLDSIZE_BROWSER", ""), "chromium", "chromium-browser", "google-chrome"]
    browser = next((found for found in map(shutil.which, filter(None, names)) if found), None)
    if browser is None:
        sys.exit("no browser here: install Debian's chromium, or name one in $WORLDSIZE_BROWSER")
    page = write_report(run).absolute()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        shown = [f"--window-size={WIDTH},{HEIGHT}", f"--force-device-scale-factor={SCALE}"]
        command = [browser, *SILENT.split(), *shown, f"--user-data-dir={profile}", f"--screenshot={PICTURE}"]
        subprocess.run([*command, page.as_uri()], check=True, capture_output=True, timeout=120)
    print(PICTURE)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
