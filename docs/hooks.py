"""For `make docs`: links of the pages to files of the repository that are no part of the site.

On the site they are the paths themselves, which exist where the repository is; a link to a file that does not exist
ends the build, as any broken link does.
"""

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
OUTSIDE = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<path>\.\./[^)#]*|notebook\.ipynb)(?:#[^)]*)?\)")


class BrokenLinkError(Exception):
    """A page links to a file that the repository has not."""


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Called by MkDocs for each page."""
    folder = Path(page.file.abs_src_path).parent

    def shown(link: re.Match[str]) -> str:
        target = (folder / link["path"]).resolve()
        if target.is_relative_to(ROOT / "docs") and target.suffix == ".md":
            return link[0]
        if not target.exists():
            raise BrokenLinkError(f"{page.file.src_path} links to {link['path']}, which is not there")
        path = f"`{target.relative_to(ROOT)}`"
        return path if link["text"].strip("`") == path.strip("`") else f"{link['text']} ({path})"

    return OUTSIDE.sub(shown, markdown)
