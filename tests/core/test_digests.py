"""Digests are stored on disk, so they must never change."""

from __future__ import annotations

import hashlib

import pytest

from streamdr.core.digests import json_digest

VALUE = {"b": [1, 2.5, None], "a": {"d": "é", "c": True}}


@pytest.mark.parametrize(
    ("compact", "text"),
    [
        (False, rb'{"a": {"c": true, "d": "\u00e9"}, "b": [1, 2.5, null]}'),
        (True, rb'{"a":{"c":true,"d":"\u00e9"},"b":[1,2.5,null]}'),
    ],
)
def test_a_digest_is_the_sha256_of_sorted_ascii_json(compact, text):
    assert json_digest(VALUE, compact=compact) == hashlib.sha256(text).hexdigest()
