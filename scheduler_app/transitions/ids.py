"""Ids of attempts and jobs: UUID version 7, which sort by the time they were made."""

from __future__ import annotations

import os
import time
import uuid


def uuid7() -> uuid.UUID:
    """A new UUID version 7: 48 bits of Unix milliseconds, then 74 random bits.

    Source: RFC 9562, section 5.7. The time in it is a hint for sorting; no decision reads it.
    """
    value = int.from_bytes(os.urandom(10), "big") & ((1 << 80) - 1)
    value |= (time.time_ns() // 1_000_000) << 80
    value = (value & ~(0xF << 76)) | (0x7 << 76)
    value = (value & ~(0x3 << 62)) | (0x2 << 62)
    return uuid.UUID(int=value)
