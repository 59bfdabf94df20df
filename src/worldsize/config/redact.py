"""What must not be kept of a text: names and passwords in addresses."""

import re
import shlex
from contextlib import suppress

HIDDEN = "***"
_CREDENTIALS = re.compile(r"(?P<scheme>\b[A-Za-z][A-Za-z0-9+.-]*:/{1,2})[^\s/'\"]+@")
"""`scheme://user:password@`; a path has folded the two slashes to one."""
_SECRET_NAME = re.compile(
    r"(?i)(?:^|[._+-])(?:key|apikey|token|secret|passw(?:or)?d|password|passphrase|credentials?|auth|authorization)s?(?:$|[_-])"
)
_NEVER_A_NUMBER = re.compile(r"(?i)key|token|auth")
"""Of these a number is no secret: `--max-tokens 512`."""
_BEARER = re.compile(r"(?i)\b(?P<kind>bearer|basic)\s+[^\s'\"]+")
_SECRET_QUERY = re.compile(r"(?i)(?P<name>[?&](?:[\w-]*(?:key|token|secret|password|signature|sig))=)[^&\s'\"]+")


def without_credentials(text: str) -> str:
    """The text with `***` in place of user names, passwords and keys within addresses."""
    text = _CREDENTIALS.sub(rf"\g<scheme>{HIDDEN}@", text)
    return _BEARER.sub(rf"\g<kind> {HIDDEN}", _SECRET_QUERY.sub(rf"\g<name>{HIDDEN}", text))


def names_a_secret(name: str) -> bool:
    """Whether a variable or a flag of this name holds a secret, by the words that people name them with."""
    return _SECRET_NAME.search(name) is not None


def safe_command(command: tuple[str, ...]) -> tuple[str, ...]:
    """A command line without credentials; of a flag that names a secret the value is hidden.

    A word that is a command line itself, such as that of a script, likewise.
    """
    kept: list[str] = []
    secret = ""
    for word in map(without_credentials, map(safe_words, command)):
        name, equals, value = word.partition("=")
        if secret and not word.startswith("-"):
            kept.append(HIDDEN if is_secret(secret, word) else word)
        else:
            kept.append(f"{name}={HIDDEN}" if equals and is_secret(name, value) else word)
        secret = name if word.startswith("-") and not equals else ""
    return tuple(kept)


def is_secret(name: str, value: str) -> bool:
    """Whether the value of a flag, or of a setting such as `wandb.api_key=…`, is to be hidden."""
    if not names_a_secret(name):
        return False
    number = re.fullmatch(r"[-+.,\d]+(?:e[-+]?\d+)?|true|false|none", value, re.IGNORECASE) is not None
    return not (number and _NEVER_A_NUMBER.search(name))


def _quoted(word: str) -> str:
    """As a shell reads it; the stars of what is hidden need no quotation."""
    plain = word.replace(HIDDEN, "")
    return word if plain in (shlex.quote(plain), "") else shlex.quote(word)


def safe_words(text: str) -> str:
    """A command line that is one word, likewise; any other text as it is."""
    with suppress(ValueError):  # a quotation that does not end
        words = shlex.split(text)
        if len(words) > 1 and (kept := safe_command(tuple(words))) != tuple(words):
            return " ".join(map(_quoted, kept))
    return text
