"""Ages in the configuration of streams: ``90s``, ``15m``, ``12h``, ``7d``."""

import re
from typing import Annotated, Final

from mqttcore._schema import Parsed

UNITS_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def age_s(text: str) -> int:
    """Seconds of ``90s``, ``15m``, ``12h`` or ``7d``.

    Raises:
        ValueError: the text is no such age, or nothing would be left of a stream.
    """
    found = re.fullmatch(r"([1-9][0-9]{0,9})([smhd])", text)
    if not found:
        raise ValueError(f"{text!r} is not an age")
    return int(found[1]) * UNITS_S[found[2]]


Age = Annotated[str, Parsed(age_s, "a number and s, m, h or d, as 7d")]
