"""What must not be kept of a text: names and passwords in addresses."""

import re
import shlex
from contextlib import suppress

HIDDEN = "***"
_CREDENTIALS = re.compile(r"(?P<scheme>\b[A-Za-z][A-Za-z0-9+.-]*:/{1,2})[^\s/'\"]+@")
"""`scheme://user:password@`; a path has folded the two slashes to one."""
_SECRET_NAME = re.compile(
    r"(?i)(?:^|[_-])(?:key|apikey|token|secret|passw(?:or)?d|password|passphrase|credentials?|auth|authorization)s?(?:$|[_-])"
)
_SECRET_QUERY = re.compile(r"(?i)(?P<name>[?&](?:[\w-]*(?:key|token|secret|password|signature|sig))=)[^&\s'\"]+")


def without_credentials(text: str) -> str:
    """The text with `***` in place of user names, passwords and keys within addresses."""
    text = _CREDENTIALS.sub(rf"\g<scheme>{HIDDEN}@", text)
    return _SECRET_QUERY.sub(rf"\g<name>{HIDDEN}", text)


def names_a_secret(name: str) -> bool:
    """Whether a variable or a flag of this name holds a secret, by the words that people name them with."""
    return _SECRET_NAME.search(name) is not None


def safe_command(command: tuple[str, ...]) -> tuple[str, ...]:
    """A command line without credentials; of a flag that names a secret the value is hidden.

    A word that is a command line itself, such as that of a script, likewise.
    """
    kept, hide = [], False
    for word in map(without_credentials, map(safe_words, command)):
        flag, equals, _ = word.partition("=")
        secret = word.startswith("-") and names_a_secret(flag)
        kept.append(HIDDEN if hide and not word.startswith("-") else f"{flag}={HIDDEN}" if secret and equals else word)
        hide = secret and not equals
    return tuple(kept)


def safe_words(text: str) -> str:
    """A command line that is one word, likewise; any other text as it is."""
    with suppress(ValueError):  # a quotation that does not end
        words = shlex.split(text)
        if len(words) > 1 and (kept := safe_command(tuple(words))) != tuple(words):
            return " ".join(word if word == HIDDEN else shlex.quote(word) for word in kept)
    return text
