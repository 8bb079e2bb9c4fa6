"""Addresses of stores as they may be shown: without the secrets that they hold."""

import re
from urllib.parse import unquote

PASSWORD = re.compile(r"(?<=://)([^:/?@]*):([^?]*)@")
SECRET_OPTION = re.compile(r"([?&][^=&]*(?:pass|secret|token)[^=&]*=)([^&]*)", re.IGNORECASE)
HIDDEN = "***"


def shown(place: str) -> str:
    """An address without its password, whether that stands before the host or among the options."""
    if "://" not in place:
        return place
    return SECRET_OPTION.sub(rf"\g<1>{HIDDEN}", PASSWORD.sub(rf"\g<1>:{HIDDEN}@", place))


def without_secrets(text: str, place: str) -> str:
    """What a database said, with every secret of its address taken out."""
    secrets = [match.group(2) for pattern in (PASSWORD, SECRET_OPTION) for match in pattern.finditer(place)]
    for secret in sorted({*secrets, *map(unquote, secrets)}, key=len, reverse=True):
        if secret:
            text = text.replace(secret, HIDDEN)
    return text
